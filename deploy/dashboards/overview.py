"""Overview: are promises kept, how much comes in, what fails, and which model it is."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from . import variables
from .board import board
from .panels import (
    COUNT,
    EVENTS_PER_SECOND,
    GREEN,
    ORANGE,
    OUTCOME_COLOURS,
    PER_SECOND,
    RATIO,
    RED,
    SECONDS,
    TOKENS_PER_SECOND,
    Column,
    Query,
    Steps,
    figures,
    lines,
    tile,
)
from .promql import CLIENT, COUNTED, FAILED, POOL, POOL_ENDPOINT, RANGE, quantile, rate, share, share_within

TTFT = "weir_time_to_first_token_seconds"
GAP = "weir_longest_token_gap_seconds"
DURATION = "weir_request_duration_seconds"
SHARES = Steps(RED, [(0.9, ORANGE), (0.95, GREEN)])
BUDGET = Steps(RED, [(0.0, ORANGE), (0.25, GREEN)])


def _success(*by: str, window: str) -> str:
    return f"1 - {share('weir_requests_total', f'{CLIENT},{FAILED}', f'{CLIENT},{COUNTED}', *by, window=window)}"


def _budget_left(share: str) -> str:
    return f"1 - (1 - {share}) / (1 - $target)"


def build() -> dashboard.Dashboard:
    made = board("weir-overview", "Weir: overview", "Are promises kept, what fails, and which model is it?")
    for variable in (variables.datasource(), variables.pool(), variables.model_name(), variables.endpoint()):
        made.with_variable(variable)
    for choice in (variables.slo_ttft(), variables.slo_gap(), variables.target()):
        made.with_variable(choice)
    _promises(made)
    _traffic(made)
    _latency(made)
    _failures(made)
    _models(made)
    return made


def _promises(made: dashboard.Dashboard) -> None:
    ttft = share_within(TTFT, "$slo_ttft", CLIENT, window=RANGE)
    gap = share_within(GAP, "$slo_gap", CLIENT, window=RANGE)
    made.with_row(dashboard.Row("Are promises kept?"))
    made.with_panel(
        tile(
            "First token within $slo_ttft s",
            "Share of streamed answers whose first token came in time, over the chosen range.",
            RATIO, ttft, SHARES,
        )
    )  # fmt: skip
    made.with_panel(
        tile(
            "No gap above $slo_gap s",
            "Share of streamed answers that never froze for longer than this, over the chosen range.",
            RATIO, gap, SHARES,
        )
    )  # fmt: skip
    made.with_panel(
        tile(
            "Answered",
            "Share of requests that got a whole answer. Clients' mistakes and requests that they gave up do not count.",
            RATIO, _success(window=RANGE), SHARES,
        )
    )  # fmt: skip
    made.with_panel(
        tile(
            "Budget left: first token",
            "How much of the slowness that the promise allows is left in this range; below 0 the promise is broken.",
            RATIO, _budget_left(ttft), BUDGET,
        )
    )  # fmt: skip
    made.with_panel(
        tile(
            "Budget left: gaps",
            "The same for answers that froze.",
            RATIO, _budget_left(gap), BUDGET,
        )
    )  # fmt: skip
    made.with_panel(
        tile(
            "Endpoints that take traffic",
            "Healthy endpoints by all endpoints, now.",
            RATIO,
            f"sum(weir_endpoint_healthy{{{POOL_ENDPOINT}}}) / count(weir_endpoint_healthy{{{POOL_ENDPOINT}}})",
            Steps(RED, [(0.5, ORANGE), (1.0, GREEN)]),
        )
    )  # fmt: skip


def _traffic(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Traffic"))
    made.with_panel(
        lines(
            "Requests, by how they ended",
            "Finished requests a second. shed: refused for want of room. upstream_error, timeout: an engine's fault. "
            "cancelled: the client left.",
            PER_SECOND,
            Query(rate("weir_requests_total", CLIENT, "outcome"), "{{outcome}}"),
            stacked=True,
            colours=OUTCOME_COLOURS,
        )
    )
    made.with_panel(
        lines(
            "Requests in flight",
            "Requests being served now, those that wait included.",
            COUNT,
            Query(f"sum by (pool) (weir_requests_in_flight{{{CLIENT}}})", "{{pool}}"),
            stacked=True,
        )
    )
    made.with_panel(
        lines(
            "Tokens",
            "Tokens a second as engines report them. cached_input is a part of input, reasoning a part of output.",
            TOKENS_PER_SECOND,
            Query(rate("weir_tokens_total", CLIENT, "type"), "{{type}}"),
        )
    )


def _latency(made: dashboard.Dashboard) -> None:
    ok = f'{CLIENT},outcome="ok"'
    made.with_row(dashboard.Row("How long users wait"))
    for title, description, histogram, selector in (
        (
            "Time to the first token",
            "From the request read whole to the first token handed over; streams only. Dots are traces: click one.",
            TTFT, CLIENT,
        ),
        (
            "Longest gap",
            "The longest silence inside an answer: what a user sees as a freeze. Dots are traces.",
            GAP, CLIENT,
        ),
        (
            "Whole requests",
            "From the request read whole to the last byte handed over; answered ones only, streams and others alike.",
            DURATION, ok,
        ),
    ):  # fmt: skip
        made.with_panel(
            lines(
                title,
                description,
                SECONDS,
                *(
                    Query(quantile(q, histogram, selector), f"p{q * 100:g}", exemplar=q == 0.95)
                    for q in (0.5, 0.95, 0.99)
                ),
            )
        )


def _failures(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("What fails"))
    made.with_panel(
        lines(
            "Answered",
            "The share above, over time.",
            RATIO,
            Query(_success("pool", window="$__rate_interval"), "{{pool}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Shed",
            "Requests a second that were refused with 429 or 503, by reason.",
            PER_SECOND,
            Query(rate("weir_shed_total", CLIENT, "reason"), "{{reason}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Failed attempts, by cause",
            "Attempts a second that failed at an engine; the client saw only those that no retry saved.",
            EVENTS_PER_SECOND,
            Query(rate("weir_endpoint_errors_total", 'endpoint=~"$endpoint"', "error_type"), "{{error_type}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Retries",
            "Further attempts a second after a failure, by what failed.",
            EVENTS_PER_SECOND,
            Query(rate("weir_retries_total", POOL, "reason"), "{{reason}}"),
            width=6,
        )
    )


def _models(made: dashboard.Dashboard) -> None:
    by = ("pool", "model")
    tokens = rate("weir_tokens_total", f'{CLIENT},type="output"', *by)
    made.with_row(dashboard.Row("By model"))
    made.with_panel(
        figures(
            "Models",
            "Now. A click on a model shows only that model.",
            by,
            [
                Column("requests/s", rate("weir_requests_total", CLIENT, *by), PER_SECOND),
                Column("answered", _success(*by, window="$__rate_interval"), RATIO),
                Column("first token p95", quantile(0.95, TTFT, CLIENT, *by), SECONDS),
                Column("longest gap p95", quantile(0.95, GAP, CLIENT, *by), SECONDS),
                Column("output tokens/s", tokens, TOKENS_PER_SECOND),
            ],
            (
                "Show only this model",
                "/d/weir-overview?var-model=${__data.fields.model}&${datasource:queryparam}&${__url_time_range}",
            ),
        )
    )
