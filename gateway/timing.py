"""A request's times for its client: the ``Server-Timing`` header and the comment at the end of a stream. Pure."""

from __future__ import annotations

from adapters.types import EngineTimings

from .flight import AttemptRecord, FlightRecord

# Where the engine says that its time went: the times as Server-Timing names them, and as the comment does.
_HEADER_NAMES = tuple(f", engine-{field[:-2]};dur=%.3f".encode() for field in EngineTimings._fields)
_COMMENT_NAMES = tuple(f" engine_{field[:-2]}_ms=%.1f".encode() for field in EngineTimings._fields)


def server_timing(record: FlightRecord, attempt: AttemptRecord, now_s: float) -> bytes:
    """Returns ``Server-Timing`` for an answer whose head or end goes out now; milliseconds, as that header has it."""
    begun_s, admitted_s, ttft_s = record.begun_s, record.admitted_s, record.ttft_s
    if admitted_s is None:
        admitted_s = begun_s
    before, timings = b"", attempt.timings
    name = b"ttft" if record.stream and attempt.first_output_s is not None else b"total"
    if ttft_s is not None:  # the end of a stream
        name = b"ttft;dur=%.3f, total" % (ttft_s * 1e3)
        attempt = next((each for each in record.attempts if each.gave), attempt)
    first_s = attempt.chosen_s
    if len(record.attempts) > 1:
        first_s = record.attempts[0].chosen_s
        word = b"hedge-wait" if attempt.role == "hedge" else b"retries"
        before = b", %b;dur=%.3f" % (word, (attempt.chosen_s - first_s) * 1e3) if attempt.chosen_s > first_s else b""
    return b"queue;dur=%.3f, route;dur=%.3f%b, connect;dur=%.3f, %b;dur=%.3f%b" % (
        (admitted_s - begun_s) * 1e3,
        (first_s - admitted_s) * 1e3,
        before,
        (attempt.connected_s - attempt.chosen_s) * 1e3 if attempt.connected_s else 0.0,
        name,
        (now_s - begun_s) * 1e3,
        b"" if timings is None else _told(timings, _HEADER_NAMES),
    )


def timing_comment(record: FlightRecord, attempt: AttemptRecord, now_s: float) -> bytes:
    """Returns the SSE comment that goes out before ``[DONE]``: safe for every client, easy to grep."""
    begun_s = record.begun_s
    ttft_s = record.ttft_s or 0.0
    return b": weir endpoint=%b attempts=%d ttft_ms=%.1f longest_gap_ms=%.1f total_ms=%.1f chunks=%d%b%b\n\n" % (
        attempt.endpoint_id.encode("ascii"),
        len(record.attempts),
        ttft_s * 1e3,
        record.longest_gap_s * 1e3,
        (now_s - begun_s) * 1e3,
        record.chunks,
        b" resumed=1" if attempt.resumes else b"",
        b"" if attempt.timings is None else _told(attempt.timings, _COMMENT_NAMES),
    )


def _told(timings: EngineTimings, names: tuple[bytes, ...]) -> bytes:
    """The engine's own times, in milliseconds; nothing for those that it does not tell."""
    return b"".join([name % (told_s * 1e3) for name, told_s in zip(names, timings, strict=True) if told_s is not None])
