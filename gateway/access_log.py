"""One JSON line for each finished request, on standard output; written in batches, no credentials.

Content is in the lines of pools that capture it, and in no others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import BinaryIO

import orjson

from adapters.json_values import write_json

from .fleet import Fleet
from .flight import FlightRecord

log = logging.getLogger("weir.access_log")

FLUSH_S = 0.25
FLUSH_BYTES = 65536
KNOWN_NAMES = 1000


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
        self._known: dict[tuple[str, str, str, str, str, str], str] = {}
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, record: FlightRecord) -> None:
        """Takes a closed record; an observer of ``FlightLog``."""
        line = self._line(record)
        self._lines.append(line)
        self._size_bytes += len(line)
        if self._size_bytes >= FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def _line(self, record: FlightRecord) -> bytes:
        """Formatted by hand: a dict for the JSON library takes three times as long to fill."""
        usage = record.usage
        ttft_s = record.ttft_s
        return (
            f'{{"ts":{record.received_unix_s:.6f},"level":"info","msg":"request","trace_id":"{record.trace_id}",'
            f'"span_id":"{record.span_id}","trace_sampled":{"false" if record.keep_reason is None else "true"},'
            f'"request_id":"{record.request_id}",{self._names(record)},'
            f'"stream":{"true" if record.stream else "false"},"status":{record.status},"outcome":"{record.outcome}",'
            f'"error_type":{_text(record.error_type)},"attempts":{len(record.attempts)},'
            f'"ttft_s":{"null" if ttft_s is None else f"{ttft_s:.6f}"},"duration_s":{record.duration_s:.6f},'
            f'"queue_s":{record.queue_s:.6f},"longest_gap_s":{record.longest_gap_s:.6f},'
            f'"client_write_wait_s":{record.client_write_wait_s:.6f},"chunks":{record.chunks},'
            f'"input_tokens":{"null" if usage is None else usage.prompt_tokens},'
            f'"output_tokens":{"null" if usage is None else usage.completion_tokens},'
            f'"bytes_in":{record.bytes_in},"bytes_out":{record.bytes_out}{_content(record)}}}\n'
        ).encode()

    def _names(self, record: FlightRecord) -> str:
        """The fields that are the same for many requests, as JSON; made once for each combination."""
        endpoint_id = record.endpoint_id
        engine = self._engines[endpoint_id].adapter.name if endpoint_id else ""
        key = (record.method, record.path, record.pool, record.model, endpoint_id, engine)
        names = self._known.get(key)
        if names is None:
            fields = {
                "method": record.method,
                "path": record.path,
                "pool": record.pool,
                "model": record.model,
                "endpoint": endpoint_id,
                "engine": engine,
                "operation": record.operation,
            }
            names = orjson.dumps(fields).decode()[1:-1]
            if len(self._known) < KNOWN_NAMES:
                self._known[key] = names
        return names

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


def _content(record: FlightRecord) -> str:
    if record.content is None:
        return ""
    said = {name: text for name, text in record.content._asdict().items() if text is not None}
    return "," + write_json(said, b"").decode()[1:-1] if said else ""


def _text(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'
