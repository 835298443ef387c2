"""The traces of one process: a place in a trace for each request, and spans for those that are kept.

Nothing here blocks or fails a request: what cannot be sent is dropped and counted.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Mapping
from time import perf_counter

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from starlette.types import Scope

from gateway import __version__
from gateway.caller_facts import CallerFacts
from gateway.config import Config, KeepRuleConfig, TelemetryConfig
from gateway.fleet import Fleet
from gateway.flight import FlightRecord
from gateway.request_head import RequestHead, pick
from gateway.trace_context import TraceHeads
from policies.sampling import UNBOUNDED, ClassRule, KeepReason, KeepRules, PerSecond, TraceFacts, keep_reason

from .client_keys import ClientKeys
from .export import Export, TraceCounts
from .exporters import choose, head_sampling, make
from .spans import Peer, SpanMaker
from .trace import Trace
from .trace_span import Process

log = logging.getLogger("weir.tracing")

_FAILED = frozenset(("shed", "upstream_error", "timeout", "internal_error"))


class Tracing:
    """Traces, or only their context where nobody takes them.

    Args:
        config: The whole one.
        fleet: The endpoints.
        environ: For the ``OTEL_*`` variables.
        exporter: Instead of the one that both ask for.

    Attributes:
        counts: Closed requests by what became of their traces; all 0 where none are made.
    """

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        environ: Mapping[str, str] = os.environ,
        exporter: SpanExporter | None = None,
    ) -> None:
        telemetry = config.telemetry
        self.counts = TraceCounts()
        self._fleet = fleet
        self._environ = environ
        self._exporter = exporter or _exporter(telemetry, environ)
        self.enabled = self._exporter is not None
        self._heads = TraceHeads(
            head_sampling(telemetry, environ) if self.enabled else None, trusts_parent=telemetry.trust_parent
        )
        self._keys = ClientKeys(rule.key.get_secret_value() for rule in telemetry.keep if rule.key is not None)
        self._rules = _keep_rules(telemetry, self._keys)
        self._tail = PerSecond(telemetry.tail_per_second)
        ruled = {name.encode("ascii") for rule in telemetry.keep for name in rule.header}
        self._headers = frozenset((b"host", b"user-agent", *ruled))
        self._process = Process(_resource(), InstrumentationScope("weir", __version__))
        self._maker = SpanMaker((config.listen_host, config.listen_port))
        # Each by its id; kept by endpoint and engine, which may be found out later
        self._known_peers: dict[tuple[str, str], Mapping[str, Peer]] = {}
        self._export: Export | None = None

    # --- a request

    def begin(self, record: FlightRecord, head: RequestHead, scope: Scope) -> None:
        """Gives a request its place in a trace."""
        self._heads.join(record, head)
        if self.enabled:
            key = self._keys.sent(head.authorization) if self._keys.any else 0
            record.caller = CallerFacts(scope["http_version"], scope["scheme"], pick(scope, self._headers), (), key)

    def observe(self, records: Iterable[FlightRecord]) -> None:
        """Takes closed records, and sets why each is kept; the first observer of ``FlightLog``."""
        export = self._export
        if export is None:
            return
        for record in records:
            if record.trace_id and (reason := self._kept(record, export)) is not None:
                record.keep_reason = reason
                export.give(Trace(record, self._peers(record), self._maker, self._process))

    def _kept(self, record: FlightRecord, export: Export) -> KeepReason | None:
        """Returns why the record's trace is exported; counts it if it is not."""
        # Of a sampled one no rule has to be asked, and so no facts are needed
        reason = "head" if record.sampled else keep_reason(_facts(record), self._rules)
        if reason is None:
            self.counts["not_kept"] += 1
        elif reason not in UNBOUNDED and not self._tail.take(perf_counter()):
            self.counts["rate_limited"] += 1
        elif not export.has_room():
            self.counts["queue_full"] += 1
        else:
            return reason
        return None

    def _peers(self, record: FlightRecord) -> Mapping[str, Peer]:
        """Returns the endpoints of a record's attempts, by id."""
        attempts = record.attempts
        if len(attempts) == 1:
            return self._peer(record.pool, attempts[0].endpoint_id)
        peers: dict[str, Peer] = {}
        for attempt in attempts:
            peers.update(self._peer(record.pool, attempt.endpoint_id))
        return peers

    def _peer(self, pool: str, endpoint_id: str) -> Mapping[str, Peer]:
        endpoint = self._fleet.pools[pool].endpoints[endpoint_id]
        engine = endpoint.adapter.name
        known = self._known_peers.get((endpoint_id, engine))
        if known is None:
            config = endpoint.config
            policy = self._fleet.pools[pool].config.routing.policy
            known = {endpoint_id: Peer(endpoint_id, engine, config.host, config.port, policy)}
            self._known_peers[endpoint_id, engine] = known
        return known

    # --- the process

    def start(self) -> None:
        """Begins to export; in the process that serves, once its event loop runs."""
        if self._exporter is not None:
            self._export = Export(self._exporter, self.counts, self._environ)

    async def stop(self) -> None:
        """Sends what is left, for two seconds at most."""
        if self._export is not None:
            await self._export.stop()
            self._export = None


def _exporter(telemetry: TelemetryConfig, environ: Mapping[str, str]) -> SpanExporter | None:
    chosen = choose(telemetry, environ)
    if chosen is None:
        return None
    try:
        exporter = make(chosen, environ)
    except LookupError as error:
        log.error("no traces are made: %s", error)
        return None
    log.info("traces go to %s", chosen.endpoint or chosen.exporter)
    return exporter


def _facts(record: FlightRecord) -> TraceFacts:
    duration_s, _, ttft_s = record.durations_s()
    usage = record.usage
    prompt_tokens = record.prompt_tokens
    return TraceFacts(
        record.sampled,
        record.pool,
        record.model,
        record.outcome in _FAILED,
        len(record.attempts),
        duration_s if ttft_s is None and record.stream else ttft_s,
        duration_s,
        record.longest_gap_s,
        record.caller.headers if record.caller is not None else (),
        prompt_tokens,
        prompt_tokens + (usage.completion_tokens if usage is not None else record.chunks),
        record.caller.key if record.caller is not None else 0,
    )


def _keep_rules(telemetry: TelemetryConfig, keys: ClientKeys) -> KeepRules:
    slower = telemetry.keep_slower_than
    classes = tuple(_class_rule(rule, keys) for rule in telemetry.keep)
    return KeepRules(slower.ttft_s, slower.duration_s, telemetry.stall_s, classes)


def _class_rule(rule: KeepRuleConfig, keys: ClientKeys) -> ClassRule:
    key = 0 if rule.key is None else keys.number(rule.key.get_secret_value())
    headers = tuple((name.encode("ascii"), value.encode("ascii")) for name, value in rule.header.items())
    return ClassRule(rule.pool, rule.model, headers, rule.min_prompt_tokens or 0, rule.min_tokens or 0, key)


def _resource() -> Resource:
    """What this process is; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` come before our own words."""
    ours = Resource(
        {
            "service.name": "weir",
            "service.version": __version__,
            "service.instance.id": str(uuid.uuid4()),
            "process.pid": os.getpid(),
        }
    )
    return ours.merge(OTELResourceDetector().detect())
