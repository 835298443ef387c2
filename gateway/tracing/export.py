"""What becomes of traces on their way out: counted, however they end; and the way itself, the SDK's batch processor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from .otlp_json import OtlpJsonExporter
from .trace import Trace
from .variables import count

log = logging.getLogger("weir.tracing")

QUEUE_TRACES = 2048
BATCH_TRACES = 256
DELAY_MS = 500
FLUSH_S = 2.0


class TraceCounts(dict[str, int]):
    """Closed requests by what became of their traces; what is on its way is not in it yet."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("exported", "not_kept", "queue_full", "rate_limited", "export_failed"), 0))


class _Counted(SpanExporter):
    """Any exporter, and what it took. Called by the processor's thread only.

    Attributes:
        fetched: Traces that have left the queue.
        ended: Those whose fate is known.
    """

    def __init__(self, exporter: SpanExporter, counts: TraceCounts) -> None:
        self.fetched = self.ended = 0
        self._exporter = exporter
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        traces = len(spans)
        self.fetched += traces
        try:
            if isinstance(self._exporter, OtlpJsonExporter):
                result = self._exporter.export(spans)
            else:
                whole = cast("Sequence[Trace]", spans)
                result = self._exporter.export([span for trace in whole for span in trace.readable()])
        except Exception:
            log.exception("the exporter of traces failed")
            result = SpanExportResult.FAILURE
        lost = traces
        if result is SpanExportResult.SUCCESS:
            rejected = self._exporter.rejected_spans if isinstance(self._exporter, OtlpJsonExporter) else 0
            lost = min(traces, rejected)
        self.ended += traces
        self._counts["exported"] += traces - lost
        self._counts["export_failed"] += lost
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class Export:
    """A queue of traces, and the thread that empties it. To be made in the process that serves: a fork has no threads.

    Args:
        exporter: Any of the SDK's kind; ended with this.
        counts: Told what becomes of the traces.
        environ: For the ``OTEL_BSP_*`` variables.
    """

    def __init__(self, exporter: SpanExporter, counts: TraceCounts, environ: Mapping[str, str]) -> None:
        self._exporter = exporter
        self._counts = counts
        self._counted = _Counted(exporter, counts)
        self._queue_traces = count(environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_TRACES)
        self._processor = BatchSpanProcessor(
            self._counted,
            max_queue_size=self._queue_traces,
            schedule_delay_millis=count(environ, "OTEL_BSP_SCHEDULE_DELAY", DELAY_MS),
            max_export_batch_size=count(
                environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_TRACES, most=self._queue_traces
            ),
        )
        self._given = 0
        self._told = False

    def has_room(self) -> bool:
        """Whether one more trace fits. The processor itself would push out the oldest, and tell nobody."""
        if self._given - self._counted.fetched < self._queue_traces:
            return True
        if not self._told:
            self._told = True
            log.warning("traces are lost: more come than are taken; weir_trace_records_total counts them")
        return False

    def give(self, trace: Trace) -> None:
        """Queues a trace, for which there is room."""
        self._given += 1
        self._processor.on_end(trace)

    async def stop(self) -> None:
        """Sends what is queued, for two seconds at most; then ends the exporter."""
        if isinstance(self._exporter, OtlpJsonExporter):
            self._exporter.hurry(FLUSH_S)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        # The SDK waits for its thread, for up to 30 s: in a thread of its own, which the process does not wait for.
        threading.Thread(target=self._flush, args=(loop, done), name="weir-traces-flush", daemon=True).start()
        try:
            async with asyncio.timeout(FLUSH_S):
                await done.wait()
        except TimeoutError:
            left = self._given - self._counted.ended
            log.warning("%d traces were not sent: their receiver takes too long", left)
            threading.Thread(target=self._exporter.shutdown, name="weir-traces-end", daemon=True).start()

    def _flush(self, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(done.set)
