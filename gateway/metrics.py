"""Weir's metrics: how closed records become numbers, and what is read elsewhere when it is asked for.

Labels come from the configuration or from a closed set; nothing that a client chose is a label value.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from . import __version__
from .config import MetricsConfig
from .endpoint import Endpoint
from .fleet import Fleet
from .flight import FlightRecord, Role
from .instruments.endpoint_series import EndpointSeries
from .instruments.exposition import END, TEXT, Format
from .instruments.families import Families
from .instruments.genai_view import GenAiView
from .instruments.metrics_text import OTHER, CounterFamily, Family, HistogramFamily, Part, ReadFamily, Room
from .instruments.process_metrics import ProcessMetrics
from .instruments.request_series import RequestSeries
from .instruments.worker_numbers import WorkerNumbers
from .probing.load_sample import LoadSample


class Metrics:
    """All families of one process.

    Args:
        fleet: The endpoints.
        access_lines_dropped: Reads how many lines the access log has lost.
        options: What the configuration says of metrics.
        config_hash: Of the whole configuration.
        workers: The numbers of all workers; None if this is the only process.

    Attributes:
        families: What is counted and measured here.
        told: All families, those too that are read elsewhere, in the order of the exposition.
        stream_buffer_bytes: Reads how much was read from engines and not yet taken by clients.
        client_connections: Reads how many connections of clients are open.
        flights_dropped: Reads how many records the flight recorder has lost.
        trace_records: How many requests had their traces end how.
        settle: Tells of the requests that ended a moment ago.
    """

    def __init__(
        self,
        fleet: Fleet,
        access_lines_dropped: Callable[[], int] = lambda: 0,
        options: MetricsConfig | None = None,
        config_hash: str = "",
        workers: WorkerNumbers | None = None,
    ) -> None:
        options = options or MetricsConfig()
        self._fleet = fleet
        self._access_lines_dropped = access_lines_dropped
        self.stream_buffer_bytes: Callable[[], int] = lambda: 0
        self.client_connections: Callable[[], int] = lambda: 0
        self.flights_dropped: Callable[[], int] = lambda: 0
        self.settle: Callable[[], None] = lambda: None
        self.trace_records: Mapping[str, int] = MappingProxyType({})
        self._config_hash = config_hash
        self._workers = workers
        room = self._room = Room(options.max_series)
        self.families = Families(room, workers)
        self._read_families = tuple(self._gauges())
        self.told: tuple[Family, ...] = (*self.families.told, *self._read_families)
        self._by_name = {family.name: family for family in self.told}
        self._request_series: dict[tuple[str, str, str, str | None], RequestSeries] = {}
        self._endpoint_series: dict[tuple[str, str, str, str], EndpointSeries] = {}
        own = self.families
        self._genai = (
            GenAiView(fleet, own.ttft, own.tpot, own.duration, own.output_tokens, own.tokens)
            if options.genai_names
            else None
        )
        self._process = ProcessMetrics(workers.living if workers is not None else None)
        self._policies = {pool.name: pool.config.routing.policy for pool in fleet.pools.values()}
        if workers is not None:
            for entry in workers.own.restored:
                if entry.family in self._by_name:
                    self._by_name[entry.family].restore(entry.labels)

    def endpoint(self, pool: str, model: str, endpoint: str, role: Role = "primary") -> EndpointSeries:
        """Returns the series that an attempt writes to; looked up once an attempt."""
        key = (pool, model, endpoint, role)
        series = self._endpoint_series.get(key)
        if series is None:
            series = self._endpoint_series[key] = EndpointSeries(self.families, self._policies.get(pool, OTHER), *key)
        return series

    def attempt_failed(self, endpoint: str, error_type: str) -> None:
        """An attempt failed just now: its request may still run for long, at another endpoint."""
        self.families.errors.at(endpoint, error_type).add()

    def retried(self, pool: str, reason: str) -> None:
        self.families.retries.at(pool, reason).add()

    def hedged(self, pool: str, result: str) -> None:
        self.families.hedges.at(pool, result).add()

    def hedge_withheld(self, pool: str, reason: str) -> None:
        self.families.hedges_withheld.at(pool, reason).add()

    def observe(self, records: Iterable[FlightRecord]) -> None:
        """Takes closed records, and counts what they say series by series; an observer of ``FlightLog``."""
        request_series = self._request_series
        gathered: dict[RequestSeries | EndpointSeries, None] = {}
        try:
            for record in records:
                key = (record.pool, record.model, record.operation, record.outcome)
                series = request_series.get(key)
                if series is None:
                    series = request_series[key] = RequestSeries(self.families, *key)
                gathered[series] = None
                series.ended(record)
                final = record.final
                for attempt in record.attempts:
                    endpoint = series.endpoints.get((attempt.endpoint_id, attempt.role))
                    if endpoint is None:
                        endpoint = self.endpoint(record.pool, record.model, attempt.endpoint_id, attempt.role)
                        series.endpoints[attempt.endpoint_id, attempt.role] = endpoint
                    gathered[endpoint] = None
                    endpoint.attempted(attempt, record, answered=attempt is final)
        finally:
            for told in gathered:
                told.settle()

    def publish(self) -> None:
        """Writes what is read elsewhere to where the other workers find it; to be called now and then."""
        if self._workers is None:
            return
        for family in self._read_families:
            family.publish(self._workers.own)
        self._workers.own.begin()

    def render(self, format: Format = TEXT) -> str:
        """Returns the exposition of everything, of all workers."""
        return "".join(self.pieces(format))

    def pieces(self, format: Format) -> Iterator[str]:
        """Yields the exposition in pieces of whole lines, made when asked for; an empty piece precedes a long one."""
        self.settle()
        if self._workers is not None:
            self.publish()
            for news in self._workers.news():
                if news.entry.family in self._by_name:
                    self._by_name[news.entry.family].join(news.entry.labels, Part(news.slots, news.alive))
        for family in self.told:
            yield from family.lines(openmetrics=format.openmetrics)
        if self._genai is not None:
            yield from self._genai.lines(openmetrics=format.openmetrics)
        yield from self._process.pieces(openmetrics=format.openmetrics)
        if format.openmetrics:
            yield END

    def _gauges(self) -> Iterator[ReadFamily]:
        fleet = self._fleet
        endpoints = [(pool, e) for pool in fleet.pools.values() for e in pool.endpoints.values()]
        yield ReadFamily(
            "weir_requests_in_flight", "Requests being served, queue included.", ("pool", "model"),
            lambda: [((pool.name, pool.name), pool.in_flight) for pool in fleet.pools.values()], summed=True,
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_in_flight", "Attempts open now.", ("pool", "endpoint"),
            lambda: [((pool.name, e.id), e.own.in_flight) for pool, e in endpoints], summed=True,
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_healthy", "1 takes traffic; 0 is half open, loading, ejected or draining.",
            ("pool", "endpoint"),
            lambda: [((pool.name, e.id), float(e.healthy)) for pool, e in endpoints],
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_info", "Always 1; join target for the engine's name.",
            ("endpoint", "engine", "engine_version", "pool"),
            lambda: [((e.id, e.adapter.name, e.engine_version, pool.name), 1) for pool, e in endpoints],
        )  # fmt: skip
        yield ReadFamily(
            "weir_endpoint_transitions_total", "Changes of an endpoint's health.", ("endpoint", "to"),
            lambda: [((e.id, to), n) for _, e in endpoints for to, n in e.transitions.items()], "counter",
        )  # fmt: skip
        yield ReadFamily(
            "weir_engine_signal_missing_total",
            "Times that an engine was to say how busy it is, or how it is set up, and did not.", ("endpoint", "signal"),
            lambda: [((e.id, signal), n) for _, e in endpoints for signal, n in e.missing.counts.items()], "counter",
        )  # fmt: skip
        prefixes = [(pool.name, p) for pool in fleet.pools.values() if (p := pool.prompts.prefixes) is not None]
        yield ReadFamily(
            "weir_prefix_blocks", "Beginnings of prompts that are remembered.", ("pool",),
            lambda: [((pool,), len(known)) for pool, known in prefixes], summed=True,
        )  # fmt: skip
        yield ReadFamily(
            "weir_prefix_blocks_evicted_total", "Beginnings of prompts that had to go for others.", ("pool",),
            lambda: [((pool,), known.evicted) for pool, known in prefixes], "counter",
        )  # fmt: skip
        for name, help, figure in _LOAD_GAUGES:
            yield ReadFamily(name, help, ("endpoint",), partial(_of_each, [e for _, e in endpoints], figure))
        yield ReadFamily(
            "weir_client_connections", "Connections of clients that are open, idle ones included.", (),
            lambda: [((), self.client_connections())], summed=True,
        )  # fmt: skip
        yield ReadFamily(
            "weir_stream_buffer_bytes", "Read from engines and not yet taken by clients.", (),
            lambda: [((), self.stream_buffer_bytes())], summed=True,
        )  # fmt: skip
        yield ReadFamily(
            "weir_metrics_series", "Label sets that count towards the cap.", (),
            lambda: [((), sum(f.series for f in self.told if isinstance(f, CounterFamily | HistogramFamily)))],
        )  # fmt: skip
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
            lambda: [((), self.flights_dropped())], "counter",
        )  # fmt: skip
        yield ReadFamily(
            "weir_trace_records_total", "Requests finished, by what became of their traces.", ("result",),
            lambda: [((result,), count) for result, count in self.trace_records.items()], "counter",
        )  # fmt: skip
        yield ReadFamily(
            "weir_build_info", "Always 1.", ("version", "python"),
            lambda: [((__version__, platform.python_version()), 1)],
        )  # fmt: skip
        yield ReadFamily(
            "weir_config_hash_info", "Always 1; changes with the configuration, but not with its credentials.",
            ("hash",), lambda: [((self._config_hash,), 1)],
        )  # fmt: skip
        if (workers := self._workers) is not None:
            yield ReadFamily("weir_workers", "Worker processes that live.", (), lambda: [((), len(workers.living()))])


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
