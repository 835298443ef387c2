"""One JSON line for each finished request, on standard output; written in batches, no credentials.

Content is in the lines of pools that capture it, and in no others; what became of a broken stream in those of such.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, BinaryIO

import orjson

from adapters.json_values import write_json

from .content import Content
from .fleet import Fleet
from .flight import FlightRecord

log = logging.getLogger("weir.access_log")

FLUSH_S = 0.25
FLUSH_BYTES = 65536
KNOWN_KINDS = 1000

_WAITS = '"longest_gap_s":%.6f,"client_write_wait_s":%.6f'
_NO_WAITS = _WAITS % (0, 0)  # as whole answers have: to format numbers is most of the work
_COUNTED = '"input_tokens":%d,"output_tokens":%d,"tokens_source":"usage"'
_ESTIMATED = '"input_tokens":%d,"output_tokens":%d,"tokens_source":"estimate"'
_NO_TOKENS = '"input_tokens":null,"output_tokens":null,"tokens_source":null'
_kind = attrgetter("method", "path", "pool", "model", "operation", "stream", "status", "outcome", "error_type")


class AccessLog:
    """Buffers lines and writes them every quarter of a second, or when 64 KiB have come together.

    An output that takes no more costs lines, never a request.

    Attributes:
        dropped: Lines that could not be written.
    """

    def __init__(self, out: BinaryIO, fleet: Fleet) -> None:
        self.dropped = 0
        self._out = out
        self._cut_off = b""  # the rest of a line of which the output took a part
        self._engines = {e.id: e for pool in fleet.pools.values() for e in pool.endpoints.values()}
        self._known: dict[tuple[tuple[Any, ...], str, str, int], str] = {}
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, records: Iterable[FlightRecord]) -> None:
        """Takes closed records; an observer of ``FlightLog``."""
        lines: list[str] = []
        try:
            for record in records:
                lines.append(self._line(record))
        finally:
            self._take("".join(lines).encode())

    def _take(self, lines: bytes) -> None:
        self._lines.append(lines)
        self._size_bytes += len(lines)
        if self._size_bytes >= FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def _line(self, record: FlightRecord) -> str:
        """Formatted by hand: a dict for the JSON library takes three times as long to fill."""
        final, usage = record.final, record.usage
        endpoint_id = "" if final is None else final.endpoint_id
        engine = self._engines[endpoint_id].adapter.name if endpoint_id else ""
        key = (_kind(record), endpoint_id, engine, len(record.attempts))
        kind = self._known.get(key) or self._new_kind(*key)
        duration_s, queue_s, ttft_s = record.durations_s()
        gap_s, wait_s = record.longest_gap_s, record.client_write_wait_s
        waits = _WAITS % (gap_s, wait_s) if gap_s or wait_s else _NO_WAITS
        tokens = _NO_TOKENS if usage is None else (_ESTIMATED if usage.estimated else _COUNTED) % usage[:2]
        said = "" if record.content is None else _content(record.content)
        if record.resume is not None:
            said += _resume(record)
        return (  # at most 30 parts: more of them CPython puts into a list first
            f'{{"ts":{record.received_unix_s:.6f},"level":"info","msg":"request","trace_id":"{record.trace_id}",'
            f'"span_id":"{record.span_id}","trace_sampled":{"false" if record.keep_reason is None else "true"},'
            f'"request_id":"{record.request_id}",{kind},'
            f'"ttft_s":{"null" if ttft_s is None else f"{ttft_s:.6f}"},"duration_s":{duration_s:.6f},'
            f'"queue_s":{queue_s:.6f},{waits},"chunks":{record.chunks},{tokens},"bytes_in":{record.bytes_in},'
            f'"bytes_out":{record.bytes_out}{said}}}\n'
        )

    def _new_kind(self, kind: tuple[Any, ...], endpoint_id: str, engine: str, attempts: int) -> str:
        """Returns the fields that are the same for many requests, as JSON; made once for each combination."""
        method, path, pool, model, operation, stream, status, outcome, error_type = kind
        fields = {
            "method": method,
            "path": path,
            "pool": pool,
            "model": model,
            "endpoint": endpoint_id,
            "engine": engine,
            "operation": operation,
            "stream": stream,
            "status": status,
            "outcome": outcome,
            "error_type": error_type,
            "attempts": attempts,
        }
        if len(self._known) >= KNOWN_KINDS:  # paths are a client's to choose
            self._known.clear()
        made = self._known[kind, endpoint_id, engine, attempts] = orjson.dumps(fields).decode()[1:-1]
        return made

    def flush(self) -> None:
        """Writes what has come together."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines, self._size_bytes = self._lines, [], 0
        if lines or self._cut_off:
            self._write(self._cut_off + b"".join(lines), len(self._cut_off))

    def _write(self, data: bytes, begun_bytes: int) -> None:
        self._cut_off = b""
        try:
            taken_bytes = self._out.write(data) or 0  # None, says an output without a buffer that takes nothing
        except BlockingIOError as full:
            self._drop(data, full.characters_written, begun_bytes, full)
            return
        except (OSError, ValueError) as closed:  # ValueError is Python's own word for a closed file
            self._drop(data, 0, begun_bytes, closed)
            return
        if taken_bytes < len(data):  # an output without a buffer of its own, which is full
            self._drop(data, taken_bytes, begun_bytes, BlockingIOError("it is full"))
        try:
            self._out.flush()
        except BlockingIOError:
            pass  # it is kept in the output's own buffer
        except (OSError, ValueError) as closed:
            self._drop(data, 0, begun_bytes, closed)

    def _drop(self, data: bytes, taken_bytes: int, begun_bytes: int, why: Exception) -> None:
        """Counts the lines that are lost. A line of which the output has a part is ended by the next write."""
        end = begun_bytes
        if taken_bytes > begun_bytes:
            end = data.index(b"\n", taken_bytes - 1) + 1
        self._cut_off = data[taken_bytes:end]
        if self.dropped == 0:
            log.warning("access lines are lost: the output takes none (%s); weir_access_log_dropped_total counts", why)
        self.dropped += data.count(b"\n", end)


def _resume(record: FlightRecord) -> str:
    told: dict[str, Any] = {"resume": record.resume, "not_resumed": record.not_resumed or None}
    return "," + orjson.dumps(told).decode()[1:-1]


def _content(content: Content) -> str:
    said = {name: text for name, text in content._asdict().items() if text is not None}
    return "," + write_json(said, b"").decode()[1:-1] if said else ""
