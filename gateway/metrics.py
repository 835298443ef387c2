"""Weir's metrics: names, units, labels and edges, and how a closed record becomes numbers.

Labels come from the configuration or from a closed set; nothing that a client chose is a label value.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest

from . import __version__
from .fleet import Endpoint, Fleet, LoadSample
from .flight import AttemptRecord, FlightRecord
from .histogram import DURATION, GAP, QUEUE, SMALL, TOKENS, TTFT, Histogram
from .metrics_text import OTHER, CounterFamily, HistogramFamily, ReadFamily, Room

MAX_SERIES = 5000
BATCH_INPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
ROLE = "primary"


class Metrics:
    """All families of one process."""

    def __init__(
        self,
        fleet: Fleet,
        access_lines_dropped: Callable[[], int] = lambda: 0,
        flights_dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._fleet = fleet
        self._access_lines_dropped = access_lines_dropped
        self._flights_dropped = flights_dropped
        room = self._room = Room(MAX_SERIES)

        def counter(name: str, help: str, *labels: str) -> CounterFamily:
            return CounterFamily(name, help, labels, room)

        def histogram(name: str, help: str, edges: tuple[float, ...], *labels: str) -> HistogramFamily:
            return HistogramFamily(name, help, labels, edges, room)

        self.requests = counter(
            "weir_requests_total", "Requests finished, by how they ended.", "pool", "model", "operation", "outcome"
        )
        self.duration = histogram(
            "weir_request_duration_seconds", "From the body read whole to the last byte handed over.", DURATION,
            "pool", "model", "operation", "outcome",
        )  # fmt: skip
        self.ttft = histogram(
            "weir_time_to_first_token_seconds",
            "From the body read whole to the first chunk with output handed over; streams only.",
            TTFT, "pool", "model",
        )  # fmt: skip
        self.longest_gap = histogram(
            "weir_longest_token_gap_seconds", "Longest wait between two reads with output in one answer.", GAP,
            "pool", "model",
        )  # fmt: skip
        self.queue = histogram(
            "weir_queue_duration_seconds", "Wait for admission, zero waits included.", QUEUE, "pool", "model"
        )
        self.overhead = histogram(
            "weir_gateway_overhead_seconds", "Time in Weir before the first attempt was sent, less the wait.", SMALL,
            "pool",
        )  # fmt: skip
        self.write_wait = histogram(
            "weir_client_write_wait_seconds", "Time in which a slow client took no bytes, per answer.", QUEUE, "pool"
        )
        self.tokens = counter(
            "weir_tokens_total", "Tokens as the engines reported them.", "pool", "model", "endpoint", "type", "source"
        )
        self.shed = counter("weir_shed_total", "Requests refused for want of room.", "pool", "model", "reason")
        self.attempts = counter(
            "weir_endpoint_attempts_total", "Attempts finished, by how they ended.",
            "pool", "model", "endpoint", "role", "outcome",
        )  # fmt: skip
        self.endpoint_ttft = histogram(
            "weir_endpoint_time_to_first_token_seconds", "From the attempt sent to its first output.", TTFT,
            "model", "endpoint", "role",
        )  # fmt: skip
        self.gaps = histogram(
            "weir_inter_token_latency_seconds", "Gaps between chunks with output; chunks of one read share theirs.",
            GAP, "model", "endpoint", "role",
        )  # fmt: skip
        self.tpot = histogram(
            "weir_time_per_output_token_seconds",
            "From the first to the last output, by completion tokens less one; one value a request.",
            GAP, "model", "endpoint", "role",
        )  # fmt: skip
        self.endpoint_duration = histogram(
            "weir_endpoint_duration_seconds", "From the attempt sent to its end.", DURATION,
            "model", "endpoint", "role",
        )  # fmt: skip
        self.connect = histogram(
            "weir_endpoint_connect_seconds", "New connections only, TLS included.", SMALL, "endpoint"
        )
        self.errors = counter("weir_endpoint_errors_total", "Failed attempts by cause.", "endpoint", "error_type")
        self.retries = counter("weir_retries_total", "Further attempts after a failure.", "pool", "reason")
        self.output_tokens = histogram(
            "weir_output_tokens_per_request", "Completion tokens per answer.", TOKENS, "model", "endpoint"
        )
        self.embeddings_batch_inputs = histogram(
            "weir_embeddings_batch_inputs", "Inputs of each gathered batch of embedding requests, one alone included.",
            BATCH_INPUTS, "pool", "model",
        )  # fmt: skip
        self._families: tuple[CounterFamily | HistogramFamily | ReadFamily, ...] = (
            self.requests, self.duration, self.ttft, self.longest_gap, self.queue, self.overhead, self.write_wait,
            self.tokens, self.shed, self.attempts, self.endpoint_ttft, self.gaps, self.tpot, self.endpoint_duration,
            self.connect, self.errors, self.retries, self.output_tokens, self.embeddings_batch_inputs, *self._gauges(),
        )  # fmt: skip
        self._request_series: dict[tuple[str, str, str, str], RequestSeries] = {}
        self._endpoint_series: dict[tuple[str, str, str], EndpointSeries] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def endpoint(self, pool: str, model: str, endpoint: str) -> EndpointSeries:
        """Returns the series that an attempt writes to; looked up once an attempt."""
        key = (pool, model, endpoint)
        series = self._endpoint_series.get(key)
        if series is None:
            series = self._endpoint_series[key] = EndpointSeries(self, pool, model, endpoint)
        return series

    def retried(self, pool: str, reason: str) -> None:
        self.retries.at(pool, reason).add()

    def observe(self, record: FlightRecord) -> None:
        """Takes a closed record; an observer of ``FlightLog``."""
        key = (record.pool or OTHER, record.model or OTHER, record.operation, record.outcome or "internal_error")
        series = self._request_series.get(key)
        if series is None:
            series = self._request_series[key] = RequestSeries(self, *key)
        series.observe(record)

    def render(self) -> str:
        """Returns the exposition of everything."""
        ours = "".join(line for family in self._families for line in family.lines())
        return ours + generate_latest(self._registry).decode()

    def _gauges(self) -> Iterator[ReadFamily]:
        fleet = self._fleet
        endpoints = [(pool, e) for pool in fleet.pools.values() for e in pool.endpoints.values()]
        yield ReadFamily(
            "weir_requests_in_flight", "Requests being served, queue included.", ("pool", "model"),
            lambda: [((pool.name, pool.name), pool.in_flight) for pool in fleet.pools.values()],
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_in_flight", "Attempts open now.", ("pool", "endpoint"),
            lambda: [((pool.name, e.id), e.lease.in_flight) for pool, e in endpoints],
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_healthy", "1 takes traffic, 0 ejected or draining.", ("pool", "endpoint"),
            lambda: [((pool.name, e.id), float(e.healthy)) for pool, e in endpoints],
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_info", "Always 1; join target for the engine's name.",
            ("endpoint", "engine", "engine_version", "pool"),
            lambda: [((e.id, e.adapter.name, e.engine_version, pool.name), 1) for pool, e in endpoints],
        )  # fmt: skip
        for name, help, figure in _LOAD_GAUGES:
            yield ReadFamily(name, help, ("endpoint",), partial(_of_each, [e for _, e in endpoints], figure))
        yield ReadFamily(
            "weir_metrics_series_dropped_total", "Label sets counted under other, for want of room.", (),
            lambda: [((), self._room.dropped)], "counter",
        )  # fmt: skip
        yield ReadFamily(
            "weir_access_log_dropped_total", "Access lines that the output did not take.", (),
            lambda: [((), self._access_lines_dropped())], "counter",
        )  # fmt: skip
        yield ReadFamily(
            "weir_recorder_dropped_total", "Flight records that did not get into the recorder's file.", (),
            lambda: [((), self._flights_dropped())], "counter",
        )  # fmt: skip
        yield ReadFamily(
            "weir_build_info", "Always 1.", ("version", "python"),
            lambda: [((__version__, platform.python_version()), 1)],
        )  # fmt: skip


_LOAD_GAUGES: tuple[tuple[str, str, Callable[[LoadSample], float | None]], ...] = (
    ("weir_engine_running", "Requests that the engine says it works on; NaN if not known.", lambda s: s.load.running),
    ("weir_engine_waiting", "Requests that the engine says wait; NaN if not known.", lambda s: s.load.waiting),
    (
        "weir_engine_kv_usage_ratio",
        "Share of its KV cache that the engine says is in use; NaN if not known.",
        lambda s: s.load.kv_usage_ratio,
    ),
    ("weir_engine_sample_age_seconds", "Since the engine was asked for these; NaN if never.", lambda s: s.age_s),
)


def _of_each(
    endpoints: list[Endpoint], figure: Callable[[LoadSample], float | None]
) -> list[tuple[tuple[str, ...], float]]:
    told = [(e.id, figure(e.load)) for e in endpoints]
    return [((id,), math.nan if value is None else value) for id, value in told]


class RequestSeries:
    """The series of one pool, model, operation and outcome."""

    def __init__(self, metrics: Metrics, pool: str, model: str, operation: str, outcome: str) -> None:
        self._requests = metrics.requests.at(pool, model, operation, outcome)
        self._duration = metrics.duration.at(pool, model, operation, outcome)
        self._shed = metrics.shed.at(pool, model, "no_endpoint") if outcome == "shed" else None
        self._queue = metrics.queue.at(pool, model)
        self._overhead = metrics.overhead.at(pool)
        self._ttft = metrics.ttft.at(pool, model)
        self._longest_gap = metrics.longest_gap.at(pool, model)
        self._write_wait = metrics.write_wait.at(pool)

    def observe(self, record: FlightRecord) -> None:
        """Takes a closed record."""
        self._requests.value += 1
        self._duration.observe(record.duration_s)
        if self._shed is not None:
            self._shed.value += 1
        if record.admitted_s is None or record.body_read_s is None:
            return
        wait_s = record.admitted_s - record.body_read_s
        self._queue.observe(wait_s)
        sent_s = record.attempts[0].sent_s if record.attempts else None
        if sent_s is not None:
            self._overhead.observe(max(sent_s - record.received_s - wait_s, 0.0))
        if (ttft_s := record.ttft_s) is not None:
            self._ttft.observe(ttft_s)
            self._longest_gap.observe(record.longest_gap_s)
            self._write_wait.observe(record.client_write_wait_s)


class EndpointSeries:
    """The series of one pool, model and endpoint."""

    def __init__(self, metrics: Metrics, pool: str, model: str, endpoint: str) -> None:
        self._metrics = metrics
        self._labels = (pool, model, endpoint)
        self.gaps: Histogram = metrics.gaps.at(model, endpoint, ROLE)
        self._ttft = metrics.endpoint_ttft.at(model, endpoint, ROLE)
        self._tpot = metrics.tpot.at(model, endpoint, ROLE)
        self._duration = metrics.endpoint_duration.at(model, endpoint, ROLE)
        self._output_tokens = metrics.output_tokens.at(model, endpoint)
        self._ok = metrics.attempts.at(pool, model, endpoint, ROLE, "ok")
        self._connect = metrics.connect.at(endpoint)
        self._reported, self._estimated = (
            tuple(
                metrics.tokens.at(pool, model, endpoint, type, source)
                for type in ("input", "output", "cached_input", "reasoning")
            )
            for source in ("usage", "estimate")
        )

    def attempted(self, attempt: AttemptRecord, record: FlightRecord) -> None:
        """Takes a finished attempt."""
        metrics, (pool, model, endpoint) = self._metrics, self._labels
        outcome = attempt.outcome or "internal_error"
        if outcome == "ok":
            self._ok.value += 1
        else:
            metrics.attempts.at(pool, model, endpoint, ROLE, outcome).add()
            if attempt.error_type is not None:
                metrics.errors.at(endpoint, attempt.error_type).add()
        sent_s, ended_s = attempt.sent_s, attempt.ended_s
        if sent_s is None or ended_s is None:
            return
        if not attempt.reused and attempt.connected_s is not None:
            self._connect.observe(attempt.connected_s - attempt.chosen_s)
        self._duration.observe(ended_s - sent_s)
        if attempt.first_output_s is not None and outcome != "cancelled":
            self._ttft.observe(attempt.first_output_s - sent_s)
        usage = record.usage
        if usage is None:
            return
        input_tokens, output_tokens, cached, reasoning = self._estimated if usage.estimated else self._reported
        input_tokens.value += usage.prompt_tokens
        output_tokens.value += usage.completion_tokens
        cached.value += usage.cached_tokens or 0
        reasoning.value += usage.reasoning_tokens or 0
        if outcome == "ok" and not usage.estimated:
            self._output_tokens.observe(usage.completion_tokens)
            if (tpot_s := record.tpot_s) is not None:
                self._tpot.observe(tpot_s)
