"""The metrics that dashboards and rules may name: every family and its labels, Weir's as they are promised.

Not every gateway makes all of them: what it makes has to be called what it is called here.
"""

from __future__ import annotations

from collections.abc import Mapping

HISTOGRAMS: Mapping[str, frozenset[str]] = {
    name: frozenset(labels.split())
    for name, labels in {
        "weir_request_duration_seconds": "pool model operation outcome",
        "weir_time_to_first_token_seconds": "pool model",
        "weir_prompt_time_to_first_token_seconds": "pool prompt_tokens",
        "weir_longest_token_gap_seconds": "pool model",
        "weir_queue_duration_seconds": "pool model",
        "weir_gateway_overhead_seconds": "pool",
        "weir_client_write_wait_seconds": "pool",
        "weir_endpoint_time_to_first_token_seconds": "model endpoint role",
        "weir_inter_token_latency_seconds": "model endpoint role",
        "weir_time_per_output_token_seconds": "model endpoint role",
        "weir_endpoint_duration_seconds": "model endpoint role",
        "weir_endpoint_connect_seconds": "endpoint",
        "weir_output_tokens_per_request": "model endpoint",
        "weir_embeddings_batch_inputs": "pool model",
        "weir_route_duration_seconds": "pool",
        "weir_event_loop_lag_seconds": "",
        "weir_gc_pause_seconds": "generation",
    }.items()
}

NUMBERS: Mapping[str, frozenset[str]] = {
    name: frozenset(labels.split())
    for name, labels in {
        "weir_requests_total": "pool model operation outcome",
        "weir_requests_in_flight": "pool model",
        "weir_tokens_total": "pool model endpoint type source",
        "weir_shed_total": "pool model reason",
        "weir_endpoint_attempts_total": "pool model endpoint role outcome",
        "weir_endpoint_in_flight": "pool endpoint",
        "weir_endpoint_errors_total": "endpoint error_type",
        "weir_hedges_total": "pool result",
        "weir_hedges_withheld_total": "pool reason",
        "weir_resumes_total": "pool result",
        "weir_retries_total": "pool reason",
        "weir_endpoint_healthy": "pool endpoint",
        "weir_endpoint_transitions_total": "endpoint to",
        "weir_endpoint_info": "endpoint engine engine_version pool",
        "weir_route_choices_total": "pool endpoint policy",
        "weir_engine_running": "endpoint",
        "weir_engine_waiting": "endpoint",
        "weir_engine_kv_usage_ratio": "endpoint",
        "weir_engine_sample_age_seconds": "endpoint",
        "weir_engine_signal_missing_total": "endpoint signal",
        "weir_prefix_blocks": "pool",
        "weir_prefix_blocks_evicted_total": "pool",
        "weir_client_connections": "",
        "weir_stream_buffer_bytes": "",
        "weir_trace_records_total": "result",
        "weir_metrics_series": "",
        "weir_metrics_series_dropped_total": "",
        "weir_access_log_dropped_total": "",
        "weir_recorder_dropped_total": "",
        "weir_config_hash_info": "hash",
        "weir_build_info": "version python",
    }.items()
}

# The engines' own, labelled with the endpoint's id by the scrape configuration.
ENGINE_HISTOGRAMS = frozenset(
    {
        "vllm:time_to_first_token_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:request_queue_time_seconds",
        "sglang:time_to_first_token_seconds",
        "sglang:queue_time_seconds",
        "tgi_request_queue_duration",
        "tgi_request_mean_time_per_token_duration",
        "lightllm_request_first_token_duration",
        "lightllm_request_mean_time_per_token_duration",
    }
)
ENGINE_NUMBERS = frozenset(
    {"vllm:generation_tokens_total", "sglang:generation_tokens_total", "lightllm_generation_tokens_total"}
)

# Of the process, with a worker's number where there are several; and what Prometheus adds by itself.
PROCESS = frozenset(
    {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
)
OF_PROMETHEUS = frozenset({"up", "scrape_duration_seconds"})


def labels_of(sample: str) -> frozenset[str] | None:
    """Returns the labels that samples of this name have, once scraped; None if nobody promised it."""
    base = sample
    for suffix in ("_bucket", "_sum", "_count"):
        base = base.removesuffix(suffix)
    scraped = frozenset({"job", "instance"})
    le = frozenset({"le"} if sample.endswith("_bucket") else ())
    if sample in NUMBERS:
        return NUMBERS[sample] | scraped
    if base != sample and base in HISTOGRAMS:
        return HISTOGRAMS[base] | scraped | le
    if sample in ENGINE_NUMBERS or (base != sample and base in ENGINE_HISTOGRAMS):
        return scraped | le | {"endpoint"}
    if sample in PROCESS:
        return scraped | {"worker"}
    return scraped if sample in OF_PROMETHEUS else None
