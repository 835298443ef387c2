"""Routing: which endpoint is chosen, why not another, and who has to wait."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from . import variables
from .board import board
from .panels import COUNT, EVENTS_PER_SECOND, GREEN, PER_SECOND, RATIO, RED, SECONDS, Query, lines, states
from .promql import CLIENT, ENDPOINT, POOL, POOL_ENDPOINT, quantile, rate

CHOICES = "weir_route_choices_total"


def build() -> dashboard.Dashboard:
    made = board("weir-routing", "Weir: routing", "Which endpoint is chosen, and who has to wait.")
    for variable in (variables.datasource(), variables.pool(), variables.model_name(), variables.endpoint()):
        made.with_variable(variable)
    _choices(made)
    _balance(made)
    _turned_away(made)
    return made


def _choices(made: dashboard.Dashboard) -> None:
    share = f"{rate(CHOICES, POOL_ENDPOINT, 'endpoint')} / on () group_left () {rate(CHOICES, POOL_ENDPOINT)}"
    made.with_row(dashboard.Row("Choices"))
    made.with_panel(
        lines(
            "Choices, by endpoint",
            "Attempts a second that routing sent to each endpoint, retries included.",
            PER_SECOND,
            Query(rate(CHOICES, POOL_ENDPOINT, "endpoint"), "{{endpoint}}"),
            stacked=True,
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Share of each endpoint",
            "Equal engines should have equal shares.",
            RATIO,
            Query(share, "{{endpoint}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Choices, by policy",
            "Which policy decided.",
            PER_SECOND,
            Query(rate(CHOICES, POOL, "policy"), "{{policy}}"),
            stacked=True,
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Time to choose",
            "How long one decision takes.",
            SECONDS,
            *(Query(quantile(q, "weir_route_duration_seconds", POOL), f"p{q * 100:g}") for q in (0.5, 0.99)),
            width=6,
        )
    )


def _balance(made: dashboard.Dashboard) -> None:
    open_attempts = f"weir_endpoint_in_flight{{{POOL_ENDPOINT}}}"
    made.with_row(dashboard.Row("Balance and health"))
    made.with_panel(
        lines(
            "Attempts in flight",
            "Open attempts at each endpoint: what least_in_flight keeps level.",
            COUNT,
            Query(f"sum by (endpoint) ({open_attempts})", "{{endpoint}}"),
        )
    )
    made.with_panel(
        states(
            "Health",
            "Green takes traffic; red is ejected or draining.",
            Query(f"min by (endpoint) (weir_endpoint_healthy{{{POOL_ENDPOINT}}})", "{{endpoint}}"),
            {"0": ("out", RED), "1": ("takes traffic", GREEN)},
        )
    )
    made.with_panel(
        lines(
            "Changes of health",
            "Ejections and readmissions a second. An endpoint that flaps is worse than one that is out.",
            EVENTS_PER_SECOND,
            Query(rate("weir_endpoint_transitions_total", ENDPOINT, "endpoint", "to"), "{{endpoint}}: {{to}}"),
        )
    )


def _turned_away(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Second tries, waits, refusals"))
    made.with_panel(
        lines(
            "Retries",
            "Further attempts a second, by what failed before.",
            EVENTS_PER_SECOND,
            Query(rate("weir_retries_total", POOL, "pool", "reason"), "{{pool}}: {{reason}}"),
        )
    )
    made.with_panel(
        lines(
            "Wait for admission, p95",
            "How long requests waited in Weir before they were sent anywhere.",
            SECONDS,
            Query(quantile(0.95, "weir_queue_duration_seconds", CLIENT, "pool"), "{{pool}}"),
        )
    )
    made.with_panel(
        lines(
            "Shed",
            "Share of requests that were refused, by reason.",
            RATIO,
            Query(
                f"{rate('weir_shed_total', CLIENT, 'pool', 'reason')}"
                f" / on (pool) group_left () {rate('weir_requests_total', CLIENT, 'pool')}",
                "{{pool}}: {{reason}}",
            ),
        )
    )
