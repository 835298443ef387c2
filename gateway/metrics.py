"""Weir's metrics: names, units, labels and edges, and how a closed record becomes numbers.

Labels come from the configuration or from a closed set; nothing that a client chose is a label value.
"""

from __future__ import annotations

import math
import platform
from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from adapters.types import Usage

from . import __version__
from .config import MetricsConfig
from .endpoint import Endpoint
from .errors import EngineBusy, NoConnection, NoEndpoint, ShuttingDown
from .fleet import Fleet
from .flight import AttemptRecord, FlightRecord, Role
from .genai_view import GenAiView
from .instruments.exposition import END, TEXT, Format
from .instruments.histogram import DURATION, GAP, QUEUE, SMALL, TOKENS, TTFT, Distribution, Exemplar
from .instruments.metrics_text import OTHER, CounterFamily, Family, HistogramFamily, Number, Part, ReadFamily, Room
from .instruments.process_metrics import ProcessMetrics
from .probing.load_sample import LoadSample
from .workers.worker_numbers import WorkerNumbers

PROMPT_TOKENS = (256, 1024, 4096, 16384, 65536)
"""Where prompts are told apart by their length."""
_PROMPT_LENGTHS = (
    f"0-{PROMPT_TOKENS[0] - 1}",
    *(f"{least}-{beyond - 1}" for least, beyond in pairwise(PROMPT_TOKENS)),
    f"{PROMPT_TOKENS[-1]}+",
)
BATCH_INPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_SHED_REASONS: dict[str | None, str] = {
    NoEndpoint.error_type: NoEndpoint.code,
    NoConnection.error_type: NoConnection.code,
    ShuttingDown.error_type: ShuttingDown.code,
}
"""By the error type of telemetry; any other is an engine's status."""


class Metrics:
    """All families of one process.

    Args:
        fleet: The endpoints.
        access_lines_dropped: Reads how many lines the access log has lost.
        options: What the configuration says of metrics.
        config_hash: Of the whole configuration.
        workers: The numbers of all workers; None if this is the only process.

    Attributes:
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
        store = workers.own if workers is not None else None

        def counter(name: str, help: str, *labels: str) -> CounterFamily:
            return CounterFamily(name, help, labels, room, store)

        def histogram(
            name: str, help: str, edges: tuple[float, ...], *labels: str, exemplars: bool = False
        ) -> HistogramFamily:
            return HistogramFamily(name, help, labels, edges, room, store, exemplars=exemplars)

        self.requests = counter(
            "weir_requests_total", "Requests finished, by how they ended.", "pool", "model", "operation", "outcome"
        )
        self.duration = histogram(
            "weir_request_duration_seconds", "From the body read whole to the last byte handed over.", DURATION,
            "pool", "model", "operation", "outcome", exemplars=True,
        )  # fmt: skip
        self.ttft = histogram(
            "weir_time_to_first_token_seconds",
            "From the body read whole to the first chunk with output handed over; streams only.",
            TTFT, "pool", "model", exemplars=True,
        )  # fmt: skip
        self.prompt_ttft = histogram(
            "weir_prompt_time_to_first_token_seconds",
            "The time to the first token as clients see it, by the length of the prompt in tokens.",
            TTFT, "pool", "prompt_tokens",
        )  # fmt: skip
        self.longest_gap = histogram(
            "weir_longest_token_gap_seconds", "Longest wait between two reads with output in one answer.", GAP,
            "pool", "model", exemplars=True,
        )  # fmt: skip
        self.queue = histogram(
            "weir_queue_duration_seconds", "Wait for admission, zero waits included.", QUEUE, "pool", "model"
        )
        self.overhead = histogram(
            "weir_gateway_overhead_seconds",
            "From being admitted to the first attempt sent: our share of the wait for it.",
            SMALL, "pool",
        )  # fmt: skip
        self.write_wait = histogram(
            "weir_client_write_wait_seconds", "Time in which a slow client took no bytes, per answer.", QUEUE, "pool"
        )
        self.tokens = counter(
            "weir_tokens_total", "Tokens as the engines reported them.", "pool", "model", "endpoint", "type", "source"
        )
        self.shed = counter(
            "weir_shed_total", "Requests turned away: for want of room, or by a stop.", "pool", "model", "reason"
        )
        self.attempts = counter(
            "weir_endpoint_attempts_total", "Attempts finished, by how they ended.",
            "pool", "model", "endpoint", "role", "outcome",
        )  # fmt: skip
        self.endpoint_ttft = histogram(
            "weir_endpoint_time_to_first_token_seconds", "From the attempt sent to its first output.", TTFT,
            "model", "endpoint", "role", exemplars=True,
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
        self.hedges = counter(
            "weir_hedges_total", "Second attempts beside a first one, by which answered.", "pool", "result"
        )
        self.hedges_withheld = counter(
            "weir_hedges_withheld_total", "Requests late with their first output that got no second attempt.",
            "pool", "reason",
        )  # fmt: skip
        self.resumes = counter(
            "weir_resumes_total", "Streams that an engine broke off, by whether another went on with them.",
            "pool", "result",
        )  # fmt: skip
        self.output_tokens = histogram(
            "weir_output_tokens_per_request", "Completion tokens per answer.", TOKENS, "model", "endpoint"
        )
        self.embeddings_batch_inputs = histogram(
            "weir_embeddings_batch_inputs", "Inputs of each gathered batch of embedding requests, one alone included.",
            BATCH_INPUTS, "pool", "model",
        )  # fmt: skip
        self.route_choices = counter(
            "weir_route_choices_total", "Endpoints chosen for an attempt.", "pool", "endpoint", "policy"
        )
        self.route_duration = histogram("weir_route_duration_seconds", "One choice of an endpoint.", SMALL, "pool")
        self.loop_lag = histogram("weir_event_loop_lag_seconds", "Lateness of a timer of 100 ms.", SMALL)
        self.gc_pauses = histogram(
            "weir_gc_pause_seconds", "Garbage collections, by the oldest generation looked at.", SMALL, "generation"
        )
        self._read_families = tuple(self._gauges())
        self._families: tuple[Family, ...] = (
            self.requests, self.duration, self.ttft, self.prompt_ttft, self.longest_gap, self.queue, self.overhead,
            self.write_wait, self.tokens, self.shed, self.attempts, self.endpoint_ttft, self.gaps, self.tpot,
            self.endpoint_duration,
            self.connect, self.errors, self.retries, self.hedges, self.hedges_withheld, self.resumes,
            self.output_tokens, self.embeddings_batch_inputs, self.route_choices, self.route_duration, self.loop_lag,
            self.gc_pauses, *self._read_families,
        )  # fmt: skip
        self._by_name = {family.name: family for family in self._families}
        self._request_series: dict[tuple[str, str, str, str | None], RequestSeries] = {}
        self._endpoint_series: dict[tuple[str, str, str, str], EndpointSeries] = {}
        self._genai = (
            GenAiView(fleet, self.ttft, self.tpot, self.duration, self.output_tokens, self.tokens)
            if options.genai_names
            else None
        )
        self._process = ProcessMetrics(workers.living if workers is not None else None)
        self._policies = {pool.name: pool.config.routing.policy for pool in fleet.pools.values()}
        if workers is not None:
            for entry in workers.own.restored:
                if entry.family in self._by_name:
                    self._by_name[entry.family].restore(entry.labels)

    @property
    def families(self) -> tuple[Family, ...]:
        """Everything of ours, in the order of the exposition."""
        return self._families

    def endpoint(self, pool: str, model: str, endpoint: str, role: Role = "primary") -> EndpointSeries:
        """Returns the series that an attempt writes to; looked up once an attempt."""
        key = (pool, model, endpoint, role)
        series = self._endpoint_series.get(key)
        if series is None:
            series = self._endpoint_series[key] = EndpointSeries(self, *key)
        return series

    def policy(self, pool: str) -> str:
        """Returns the routing policy of a pool."""
        return self._policies.get(pool, OTHER)

    def attempt_failed(self, endpoint: str, error_type: str) -> None:
        """An attempt failed just now: its request may still run for long, at another endpoint."""
        self.errors.at(endpoint, error_type).add()

    def retried(self, pool: str, reason: str) -> None:
        self.retries.at(pool, reason).add()

    def hedged(self, pool: str, result: str) -> None:
        self.hedges.at(pool, result).add()

    def hedge_withheld(self, pool: str, reason: str) -> None:
        self.hedges_withheld.at(pool, reason).add()

    def observe(self, records: Iterable[FlightRecord]) -> None:
        """Takes closed records, and counts what they say series by series; an observer of ``FlightLog``."""
        request_series = self._request_series
        gathered: dict[RequestSeries | EndpointSeries, None] = {}
        try:
            for record in records:
                key = (record.pool, record.model, record.operation, record.outcome)
                series = request_series.get(key)
                if series is None:
                    series = request_series[key] = RequestSeries(self, *key)
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
        for family in self._families:
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
            lambda: [((), sum(f.series for f in self._families if isinstance(f, CounterFamily | HistogramFamily)))],
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


class Gathered(list[float]):
    """Values on their way into a distribution, and which of them belong to traces that are exported."""

    __slots__ = ("_distribution", "_traced")

    def __init__(self, distribution: Distribution) -> None:
        super().__init__()
        self._distribution = distribution
        self._traced: list[tuple[float, FlightRecord]] = []

    def exemplify(self, record: FlightRecord) -> None:
        """The trace of the last value's record is exported: whoever sees the value's bucket can find it."""
        if record.trace_id:
            self._traced.append((self[-1], record))

    def settle(self) -> None:
        """Observes the values; the newest of a bucket whose trace is exported becomes its exemplar."""
        if not self:
            return
        distribution = self._distribution
        distribution.observe_all(self)
        self.clear()
        if self._traced:
            newest = {bisect_left(distribution.edges, traced[0]): traced for traced in self._traced}
            for value, record in newest.values():
                distribution.exemplify(Exemplar(record.trace_id, value, _ended_unix_s(record)))
            self._traced.clear()


def _ended_unix_s(record: FlightRecord) -> float:
    return record.received_unix_s + (record.done_s or record.received_s) - record.received_s


class RequestSeries:
    """The series of one pool, model, operation and outcome, and what is to be counted there.

    Attributes:
        endpoints: The series of such requests' attempts, by endpoint and role.
    """

    def __init__(self, metrics: Metrics, pool: str, model: str, operation: str, outcome: str | None) -> None:
        pool, model, outcome = pool or OTHER, model or OTHER, outcome or "internal_error"
        self._requests = metrics.requests.at(pool, model, operation, outcome)
        self._durations_s = Gathered(metrics.duration.at(pool, model, operation, outcome))
        self._shed = (
            {reason: metrics.shed.at(pool, model, reason) for reason in (*_SHED_REASONS.values(), EngineBusy.code)}
            if outcome == "shed"
            else None
        )
        self._queues_s = Gathered(metrics.queue.at(pool, model))
        self._overheads_s = Gathered(metrics.overhead.at(pool))
        self._ttfts_s = Gathered(metrics.ttft.at(pool, model))
        self._prompt_ttft, self._pool = metrics.prompt_ttft, pool
        self._prompt_ttfts_s: dict[int, Gathered] = {}
        self._longest_gaps_s = Gathered(metrics.longest_gap.at(pool, model))
        self._write_waits_s = Gathered(metrics.write_wait.at(pool))
        self.endpoints: dict[tuple[str, Role], EndpointSeries] = {}

    def ended(self, record: FlightRecord) -> None:
        """Takes a closed record."""
        duration_s, queue_s, ttft_s = record.durations_s()
        admitted_s = record.admitted_s
        self._durations_s.append(duration_s)
        if record.keep_reason is not None:
            self._durations_s.exemplify(record)
        if self._shed is not None:
            self._shed[_SHED_REASONS.get(record.error_type, EngineBusy.code)].value += 1
        if admitted_s is None or record.body_read_s is None:
            return
        self._queues_s.append(queue_s)
        sent_s = record.attempts[0].sent_s if record.attempts else None
        if sent_s is not None:
            self._overheads_s.append(sent_s - admitted_s if sent_s > admitted_s else 0.0)
        if ttft_s is not None:
            self._ttfts_s.append(ttft_s)
            self._by_prompt(record).append(ttft_s)
            self._longest_gaps_s.append(record.longest_gap_s)
            self._write_waits_s.append(record.client_write_wait_s)
            if record.keep_reason is not None:
                self._ttfts_s.exemplify(record)
                self._longest_gaps_s.exemplify(record)
        elif record.client_write_wait_s:  # of what is passed on
            self._write_waits_s.append(record.client_write_wait_s)

    def _by_prompt(self, record: FlightRecord) -> Gathered:
        length = bisect(PROMPT_TOKENS, record.prompt_tokens)
        ttfts_s = self._prompt_ttfts_s.get(length)
        if ttfts_s is None:
            series = self._prompt_ttft.at(self._pool, _PROMPT_LENGTHS[length])
            ttfts_s = self._prompt_ttfts_s[length] = Gathered(series)
        return ttfts_s

    def settle(self) -> None:
        """Counts what was taken since the last time."""
        self._requests.value += len(self._durations_s)
        self._durations_s.settle()
        self._queues_s.settle()
        self._overheads_s.settle()
        self._ttfts_s.settle()
        for ttfts_s in self._prompt_ttfts_s.values():
            ttfts_s.settle()
        self._longest_gaps_s.settle()
        self._write_waits_s.settle()


class EndpointSeries:
    """The series of one pool, model, endpoint and role, and what is to be counted there."""

    def __init__(self, metrics: Metrics, pool: str, model: str, endpoint: str, role: str) -> None:
        self._metrics = metrics
        self._labels = (pool, model, endpoint, role)
        self.gaps: Distribution = metrics.gaps.at(model, endpoint, role)
        self._ttfts_s = Gathered(metrics.endpoint_ttft.at(model, endpoint, role))
        self._tpots_s = Gathered(metrics.tpot.at(model, endpoint, role))
        self._durations_s = Gathered(metrics.endpoint_duration.at(model, endpoint, role))
        self._output_tokens = metrics.output_tokens.at(model, endpoint)
        self._ok = metrics.attempts.at(pool, model, endpoint, role, "ok")
        self._attempts = self._failed = 0
        self._connect = metrics.connect.at(endpoint)
        self._choices = metrics.route_choices.at(pool, endpoint, metrics.policy(pool))
        self._routes_s = Gathered(metrics.route_duration.at(pool))
        self._reported, self._estimated = (
            tuple(
                metrics.tokens.at(pool, model, endpoint, type, source)
                for type in ("input", "output", "cached_input", "reasoning")
            )
            for source in ("usage", "estimate")
        )
        self._answers: list[Usage] = []

    def attempted(self, attempt: AttemptRecord, record: FlightRecord, *, answered: bool) -> None:
        """Takes a finished attempt; ``answered`` if the request's answer is its, of which the record's usage tells."""
        self._attempts += 1
        if attempt.route_s is not None:
            self._routes_s.append(attempt.route_s)
        outcome = attempt.outcome
        if outcome != "ok":
            self._failed += 1
            self._metrics.attempts.at(*self._labels, outcome or "internal_error").add()
        sent_s, ended_s, first_s = attempt.sent_s, attempt.ended_s, attempt.first_output_s
        if sent_s is None or ended_s is None:
            return
        if not attempt.reused and attempt.connected_s is not None:
            self._connect.observe(attempt.connected_s - attempt.chosen_s)
        self._durations_s.append(ended_s - sent_s)
        if first_s is not None and outcome != "cancelled":  # a client that left may not have waited for it
            self._ttfts_s.append(first_s - sent_s)
            if record.keep_reason is not None:
                self._ttfts_s.exemplify(record)
        usage = record.usage
        if usage is None or not answered:
            return
        if outcome != "ok" or usage.estimated:
            _count_tokens(self._estimated if usage.estimated else self._reported, [usage])
            return
        self._answers.append(usage)
        if record.stream and not attempt.resumes and (tpot_s := record.tpot_s) is not None:
            self._tpots_s.append(tpot_s)

    def settle(self) -> None:
        """Counts what was taken since the last time."""
        self._choices.value += len(self._routes_s)
        self._ok.value += self._attempts - self._failed
        self._attempts = self._failed = 0
        self._routes_s.settle()
        self._durations_s.settle()
        self._ttfts_s.settle()
        self._tpots_s.settle()
        if self._answers:
            _count_tokens(self._reported, self._answers)
            self._output_tokens.observe_all([usage.completion_tokens for usage in self._answers])
            self._answers.clear()


def _count_tokens(numbers: Sequence[Number], answers: Sequence[Usage]) -> None:
    """Adds what the answers say to the numbers of input, output, cached input and reasoning."""
    for number, tokens in zip(numbers, zip(*answers, strict=True), strict=False):
        number.value += sum(filter(None, tokens))
