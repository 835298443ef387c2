"""Engines: each endpoint, what Weir measures of it against what it measures itself, and how full it is."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from . import variables
from .board import board
from .panels import (
    COUNT,
    EVENTS_PER_SECOND,
    PER_SECOND,
    RATIO,
    SECONDS,
    TOKENS_PER_SECOND,
    Column,
    Query,
    figures,
    lines,
)
from .promql import (
    ATTEMPT,
    CLIENT,
    ENDPOINT,
    ENGINE_QUEUE,
    ENGINE_TOKENS,
    ENGINE_TPOT,
    ENGINE_TTFT,
    FAILED,
    POOL_ENDPOINT,
    WINDOW,
    engine_mean,
    engine_quantile,
    engine_rate,
    mean,
    quantile,
    rate,
    share,
)

TTFT = "weir_endpoint_time_to_first_token_seconds"
TPOT = "weir_time_per_output_token_seconds"
ATTEMPTS = "weir_endpoint_attempts_total"


def build() -> dashboard.Dashboard:
    made = board("weir-engines", "Weir: engines", "Each endpoint: what Weir sees of it, and what it says itself.")
    for variable in (variables.datasource(), variables.pool(), variables.model_name(), variables.endpoint()):
        made.with_variable(variable)
    _table(made)
    _against(made)
    _load(made)
    _attempts(made)
    return made


def _newest(gauge: str, selector: str = ENDPOINT) -> str:
    """The figure of an endpoint; several gateways tell about the same."""
    return f"max by (endpoint) ({gauge}{{{selector}}})"


def _table(made: dashboard.Dashboard) -> None:
    attempts = f"{ATTEMPTS}{{{POOL_ENDPOINT}}}[{WINDOW}]"
    failed = f"{POOL_ENDPOINT},{FAILED}"
    made.with_row(dashboard.Row("Endpoints"))
    made.with_panel(
        figures(
            "Endpoints",
            "Now, as Weir sees them. A click on an endpoint shows only that endpoint.",
            ("endpoint",),
            [
                Column("attempts/s", rate(ATTEMPTS, POOL_ENDPOINT, "endpoint"), PER_SECOND),
                Column(
                    "share",
                    f"sum by (endpoint) (rate({attempts})) / scalar(sum(rate({attempts})))",
                    RATIO,
                ),
                Column("failed", share(ATTEMPTS, failed, POOL_ENDPOINT, "endpoint"), RATIO),
                Column("in flight", f"sum by (endpoint) (weir_endpoint_in_flight{{{POOL_ENDPOINT}}})", COUNT),
                Column("first token p95", quantile(0.95, TTFT, ATTEMPT, "endpoint"), SECONDS),
                Column("per token p50", quantile(0.5, TPOT, ATTEMPT, "endpoint"), SECONDS),
                Column("engine waiting", _newest("weir_engine_waiting"), COUNT),
                Column("KV cache", _newest("weir_engine_kv_usage_ratio"), RATIO),
                Column("healthy", f"min by (endpoint) (weir_endpoint_healthy{{{POOL_ENDPOINT}}})", COUNT),
            ],
            (
                "Show only this endpoint",
                "/d/weir-engines?var-endpoint=${__data.fields.endpoint}&${datasource:queryparam}&${__url_time_range}",
            ),
        )
    )


def _against(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Weir's clock against the engine's own"))
    made.with_panel(
        lines(
            "Time to the first token, p95",
            "Weir: attempt sent to first output read. Engine: its own histogram, with the same edges in vLLM. A gap "
            "that lasts is the network or the engine's HTTP server; while load changes the engine's line runs ahead, "
            "as Weir counts an answer when it ends. Needs the engines' metrics, labelled with the endpoint's id.",
            SECONDS,
            Query(quantile(0.95, TTFT, ATTEMPT, "endpoint"), "{{endpoint}}: Weir", exemplar=True),
            Query(engine_quantile(0.95, ENGINE_TTFT, "endpoint"), "{{endpoint}}: engine"),
        )
    )
    made.with_panel(
        lines(
            "What the way adds to the first token",
            "Mean by Weir less mean by the engine. Other clients of the engine count in the engine's mean, so that it "
            "may fall below 0.",
            SECONDS,
            Query(
                f"{mean(TTFT, ATTEMPT, 'endpoint')} - on (endpoint) {engine_mean(ENGINE_TTFT, 'endpoint')}",
                "{{endpoint}}",
            ),
        )
    )
    made.with_panel(
        lines(
            "Time per output token, p50",
            "The same comparison for the tokens after the first.",
            SECONDS,
            Query(quantile(0.5, TPOT, ATTEMPT, "endpoint"), "{{endpoint}}: Weir"),
            Query(engine_quantile(0.5, ENGINE_TPOT, "endpoint"), "{{endpoint}}: engine"),
        )
    )


def _load(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("How full engines are"))
    for title, description, unit, expr in (
        (
            "Batch",
            "Requests that the engine works on at once, as it says. A flat top is its limit.",
            COUNT, _newest("weir_engine_running"),
        ),
        (
            "Queue",
            "Requests that wait in the engine. They would be better off in Weir, or at another endpoint.",
            COUNT, _newest("weir_engine_waiting"),
        ),
        (
            "KV cache",
            "Share of the cache in use. At 1, engines throw out running requests and begin them anew.",
            RATIO, _newest("weir_engine_kv_usage_ratio"),
        ),
        (
            "Wait in the engine's queue, p95",
            "By the engine's own histogram.",
            SECONDS, engine_quantile(0.95, ENGINE_QUEUE, "endpoint"),
        ),
        (
            "Tokens generated",
            "By the engine's own count, so that the work for other clients is in it.",
            TOKENS_PER_SECOND, engine_rate(ENGINE_TOKENS, "", "endpoint"),
        ),
        (
            "Age of these figures",
            "Since Weir last learnt them. Above some seconds, choices are made blindly.",
            SECONDS, _newest("weir_engine_sample_age_seconds"),
        ),
    ):  # fmt: skip
        made.with_panel(lines(title, description, unit, Query(expr, "{{endpoint}}")))


def _attempts(made: dashboard.Dashboard) -> None:
    by_engine = (
        f"sum by (engine) (rate({ATTEMPTS}{{{POOL_ENDPOINT}}}[{WINDOW}])"
        f" * on (instance, endpoint) group_left (engine) weir_endpoint_info)"
    )
    made.with_row(dashboard.Row("Attempts"))
    for title, description, unit, query in (
        (
            "Attempts, by engine",
            "Attempts a second, by the software that serves them.",
            PER_SECOND, Query(by_engine, "{{engine}}"),
        ),
        (
            "Failures",
            "Failed attempts a second, by endpoint and cause.",
            EVENTS_PER_SECOND,
            Query(
                rate("weir_endpoint_errors_total", ENDPOINT, "endpoint", "error_type"),
                "{{endpoint}}: {{error_type}}",
            ),
        ),
        (
            "Whole attempts, p95",
            "From the attempt sent to its end.",
            SECONDS, Query(quantile(0.95, "weir_endpoint_duration_seconds", ATTEMPT, "endpoint"), "{{endpoint}}"),
        ),
        (
            "New connections, p95",
            "Time to connect, TLS included; connections that were open already are not in it.",
            SECONDS, Query(quantile(0.95, "weir_endpoint_connect_seconds", ENDPOINT, "endpoint"), "{{endpoint}}"),
        ),
    ):  # fmt: skip
        made.with_panel(lines(title, description, unit, query, width=6))
    made.with_panel(
        lines(
            "Gathered embeddings",
            "Mean number of inputs in one request to an engine, where small embedding requests are gathered.",
            COUNT,
            Query(mean("weir_embeddings_batch_inputs", CLIENT, "pool"), "{{pool}}"),
            width=24,
        )
    )
