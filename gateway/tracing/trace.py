"""One request's trace on its way to the exporter: its record, of which the spans are made there."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from gateway.flight import FlightRecord

from .spans import Peer, SpanMaker
from .trace_span import SAMPLED, Process, TraceSpan

# What the SDK's processor reads of a span; the same for all, and so made once.
_READ = vars(ReadableSpan("trace", SpanContext(1, 1, False, SAMPLED), resource=Resource.get_empty()))


class Trace(ReadableSpan):
    """What the SDK's processor takes for one span; so a trace is never torn, and costs its queue once.

    Attributes:
        process: Who makes it.
    """

    def __init__(self, record: FlightRecord, peers: Mapping[str, Peer], maker: SpanMaker, process: Process) -> None:
        self.__dict__.update(_READ)
        self.process = process
        self._record = record
        self._peers = peers
        self._maker = maker

    def spans(self) -> list[TraceSpan]:
        return self._maker.spans(self._record, self._peers)

    def readable(self) -> list[ReadableSpan]:
        """Returns its spans as the SDK's."""
        return [span.readable(self.process) for span in self.spans()]
