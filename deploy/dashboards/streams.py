"""Streams: how tokens come, where the time before the first one goes, and who holds them up."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from . import variables
from .board import board
from .panels import COUNT, RATIO, SECONDS, Query, heat_map, lines
from .promql import (
    ATTEMPT,
    CLIENT,
    ENDPOINT,
    ENGINE_QUEUE,
    INSTANCE,
    POOL,
    buckets,
    engine_mean,
    mean,
    quantile,
    rate,
)

TTFT = "weir_time_to_first_token_seconds"
PROMPT_TTFT = "weir_prompt_time_to_first_token_seconds"
GAP = "weir_longest_token_gap_seconds"
ITL = "weir_inter_token_latency_seconds"
TPOT = "weir_time_per_output_token_seconds"
QUEUE = "weir_queue_duration_seconds"
OVERHEAD = "weir_gateway_overhead_seconds"
ENDPOINT_TTFT = "weir_endpoint_time_to_first_token_seconds"
QUANTILES = (0.5, 0.95, 0.99)


def build() -> dashboard.Dashboard:
    made = board("weir-streams", "Weir: streams", "How tokens come, and where the time goes.")
    for variable in (variables.datasource(), variables.pool(), variables.model_name(), variables.endpoint()):
        made.with_variable(variable)
    made.with_variable(variables.instance())
    _maps(made)
    _first_token(made)
    _decoding(made)
    _outside_engines(made)
    return made


def _maps(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Heat maps"))
    made.with_panel(
        heat_map(
            "Time to the first token",
            "Each column is a moment, each row a time; the warmer, the more answers. Two bands mean two kinds of "
            "requests, or two kinds of endpoints. Dots are traces.",
            SECONDS,
            Query(buckets(TTFT, CLIENT), exemplar=True),
        )
    )
    made.with_panel(
        heat_map(
            "Longest gap of an answer",
            "The longest silence inside each answer. Dots are traces.",
            SECONDS,
            Query(buckets(GAP, CLIENT), exemplar=True),
        )
    )
    made.with_panel(
        heat_map(
            "Time between tokens",
            "Every gap between two chunks with output; chunks that came in one read share theirs.",
            SECONDS,
            Query(buckets(ITL, ATTEMPT)),
        )
    )


def _first_token(made: dashboard.Dashboard) -> None:
    engine_queue = engine_mean(ENGINE_QUEUE)
    made.with_row(dashboard.Row("Where the time before the first token goes"))
    made.with_panel(
        lines(
            "Parts of the wait",
            "Means: the wait for admission, Weir's own work, the wait in the engine's queue by its own histogram if it "
            "has one, and the rest of the engine's time to its first output.",
            SECONDS,
            Query(mean(QUEUE, CLIENT), "queue in Weir"),
            Query(mean(OVERHEAD, POOL), "Weir's own work"),
            Query(engine_queue, "queue in the engine"),
            Query(f"{mean(ENDPOINT_TTFT, ATTEMPT)} - (({engine_queue}) or vector(0))", "the engine's work"),
            stacked=True,
            width=12,
        )
    )
    made.with_panel(
        lines(
            "Weir's share of the wait",
            "How much of the time before the first token requests spent waiting in Weir. Streams and others count.",
            RATIO,
            Query(f"{rate(f'{QUEUE}_sum', CLIENT)} / {rate(f'{TTFT}_sum', CLIENT)}", "waiting in Weir"),
            width=12,
        )
    )
    made.with_panel(
        lines(
            "By model, p95",
            "The time to the first token of the slowest twentieth, as clients see it.",
            SECONDS,
            Query(quantile(0.95, TTFT, CLIENT, "model"), "{{model}}", exemplar=True),
            width=12,
        )
    )
    made.with_panel(
        lines(
            "By the length of the prompt, p95",
            "The time to the first token of the slowest twentieth, by the tokens of the prompt. What is slow for long "
            "prompts only is prefill, or a cache that is missed; what is slow for short ones too is a queue.",
            SECONDS,
            Query(quantile(0.95, PROMPT_TTFT, POOL, "prompt_tokens"), "{{prompt_tokens}} tokens"),
            width=12,
        )
    )


def _decoding(made: dashboard.Dashboard) -> None:
    chunks = rate(f"{ITL}_count", ATTEMPT, "endpoint")
    made.with_row(dashboard.Row("After the first token"))
    made.with_panel(
        lines(
            "Time between tokens, p99",
            "By endpoint. What rises here is felt as stutter.",
            SECONDS,
            Query(quantile(0.99, ITL, ATTEMPT, "endpoint"), "{{endpoint}}"),
        )
    )
    made.with_panel(
        lines(
            "Time per output token, p50",
            "By endpoint: from first to last token, by tokens. One value a request, from the engine's own count.",
            SECONDS,
            Query(quantile(0.5, TPOT, ATTEMPT, "endpoint"), "{{endpoint}}"),
        )
    )
    made.with_panel(
        lines(
            "Speed of one stream",
            "Chunks a second while an answer runs, by endpoint.",
            COUNT,
            Query(f"{chunks} / {rate(f'{ITL}_sum', ATTEMPT, 'endpoint')}", "{{endpoint}}"),
        )
    )


def _outside_engines(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("What engines are not to blame for"))
    made.with_panel(
        lines(
            "Clients that read slowly",
            "Time in which a client took no bytes, per answer. Such answers look slow and are not.",
            SECONDS,
            *(Query(quantile(q, "weir_client_write_wait_seconds", POOL), f"p{q * 100:g}") for q in QUANTILES),
        )
    )
    made.with_panel(
        lines(
            "Event-loop lag, p99",
            "How late Weir's timers fire. Above 50 ms, streams wait for Weir: see the dashboard of the gateway itself.",
            SECONDS,
            Query(quantile(0.99, "weir_event_loop_lag_seconds", INSTANCE, "instance"), "{{instance}}"),
        )
    )
    made.with_panel(
        heat_map(
            "Length of answers",
            "Completion tokens per answer: long answers take long, and that is no fault.",
            COUNT,
            Query(buckets("weir_output_tokens_per_request", f'model=~"$model",{ENDPOINT}')),
        )
    )
