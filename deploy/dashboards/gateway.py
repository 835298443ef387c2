"""The gateway itself: does it keep up, what does it take, and does its telemetry get through?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from . import variables
from .board import board
from .panels import (
    BYTES,
    COUNT,
    EVENTS_PER_SECOND,
    GREEN,
    ORANGE,
    RATIO,
    RED,
    SECONDS,
    Query,
    Steps,
    heat_map,
    lines,
    tile,
)
from .promql import INSTANCE, RANGE, WINDOW, buckets, quantile, rate

LAG = "weir_event_loop_lag_seconds"
GC = "weir_gc_pause_seconds"
NONE_IS_GOOD = Steps(GREEN, [(1e-9, RED)])


def build() -> dashboard.Dashboard:
    made = board("weir-gateway", "Weir: the gateway itself", "Does Weir keep up, and does its telemetry get through?")
    made.with_variable(variables.datasource()).with_variable(variables.instance())
    _at_a_glance(made)
    _keeps_up(made)
    _takes(made)
    _telemetry(made)
    return made


def _each(gauge: str) -> str:
    return f"{gauge}{{{INSTANCE}}}"


def _at_a_glance(made: dashboard.Dashboard) -> None:
    lost = " + ".join(
        f"sum(increase({_each(name)}[{RANGE}]))"
        for name in ("weir_access_log_dropped_total", "weir_recorder_dropped_total")
    )
    made.with_row(dashboard.Row("At a glance"))
    for title, description, unit, expr, steps in (
        (
            "Gateways that answer",
            "Scraped without an error, by all that are scraped.",
            RATIO, f"sum({_each('up')}) / count({_each('up')})", Steps(RED, [(0.5, ORANGE), (1.0, GREEN)]),
        ),
        (
            "Event-loop lag, p99",
            "Over the range. What Weir itself adds to each token at worst.",
            SECONDS,
            f"histogram_quantile(0.99, {rate(f'{LAG}_bucket', INSTANCE, 'le', window=RANGE)})",
            Steps(GREEN, [(0.02, ORANGE), (0.05, RED)]),
        ),
        (
            "Lines and records lost",
            "Access lines that the output did not take, and requests that the flight recorder did not keep.",
            COUNT, lost, NONE_IS_GOOD,
        ),
        (
            "Traces lost",
            "Traces that were kept and did not get out, over the range.",
            COUNT,
            f'sum(increase(weir_trace_records_total{{{INSTANCE},result=~"queue_full|export_failed"}}[{RANGE}]))',
            NONE_IS_GOOD,
        ),
        (
            "Series refused",
            "Label sets that found no room and are counted under `other`.",
            COUNT, f"sum(increase({_each('weir_metrics_series_dropped_total')}[{RANGE}]))", NONE_IS_GOOD,
        ),
        (
            "Configurations in use",
            "More than one, for long, means that some gateway was left behind.",
            COUNT, f"count(count by (hash) ({_each('weir_config_hash_info')}))", Steps(GREEN, [(2.0, ORANGE)]),
        ),
    ):  # fmt: skip
        made.with_panel(tile(title, description, unit, expr, steps))


def _keeps_up(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Does it keep up?"))
    made.with_panel(
        heat_map(
            "Event-loop lag",
            "How late a timer fires. Every stream of the process waits as long.",
            SECONDS,
            Query(buckets(LAG, INSTANCE)),
        )
    )
    made.with_panel(
        lines(
            "Pauses for garbage, p99",
            "How long Python's collector stops everything, by the oldest generation looked at.",
            SECONDS,
            Query(quantile(0.99, GC, INSTANCE, "generation"), "generation {{generation}}"),
        )
    )
    made.with_panel(
        lines(
            "Weir's own work per request",
            "Time in Weir before an attempt was sent, without the wait for admission.",
            SECONDS,
            *(Query(quantile(q, "weir_gateway_overhead_seconds", INSTANCE), f"p{q * 100:g}") for q in (0.5, 0.99)),
        )
    )


def _takes(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("What does it take?"))
    for title, description, unit, expr in (
        (
            "CPU",
            "Cores in use. A worker can use one; near that, lag rises.",
            COUNT, f"sum by (instance, worker) (rate({_each('process_cpu_seconds_total')}[{WINDOW}]))",
        ),
        (
            "Memory",
            "Resident memory.",
            BYTES, f"sum by (instance, worker) ({_each('process_resident_memory_bytes')})",
        ),
        (
            "Buffered for slow clients",
            "Read from engines and not yet taken by clients.",
            BYTES, f"sum by (instance) ({_each('weir_stream_buffer_bytes')})",
        ),
    ):  # fmt: skip
        made.with_panel(lines(title, description, unit, Query(expr, "{{instance}} {{worker}}"), width=6))
    made.with_panel(
        lines(
            "Open files",
            "Connections are files, those of clients and those to engines. Near the limit, new ones are refused.",
            COUNT,
            Query(f"sum by (instance, worker) ({_each('process_open_fds')})", "{{instance}} {{worker}}"),
            Query(f"sum by (instance) ({_each('weir_client_connections')})", "{{instance}}: clients"),
            width=6,
        )
    )


def _telemetry(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Does its telemetry get through?"))
    made.with_panel(
        lines(
            "Traces",
            "Finished requests a second, by what became of their traces. rate_limited: slow or failed, beyond "
            "telemetry.tail_per_second.",
            EVENTS_PER_SECOND,
            Query(rate("weir_trace_records_total", INSTANCE, "result"), "{{result}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Lost",
            "A second: access lines, flight records, and label sets beyond metrics.max_series.",
            EVENTS_PER_SECOND,
            Query(rate("weir_access_log_dropped_total", INSTANCE), "access lines"),
            Query(rate("weir_recorder_dropped_total", INSTANCE), "flight records"),
            Query(rate("weir_metrics_series_dropped_total", INSTANCE), "label sets"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Series",
            "Label sets that count towards metrics.max_series.",
            COUNT,
            Query(f"max by (instance) ({_each('weir_metrics_series')})", "{{instance}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Time of a scrape",
            "As Prometheus sees it.",
            SECONDS,
            Query(f"max by (instance) ({_each('scrape_duration_seconds')})", "{{instance}}"),
            width=6,
        )
    )
