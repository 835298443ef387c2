"""A request's times for its client: the ``Server-Timing`` header and the comment at the end of a stream. Pure."""

from __future__ import annotations

from .flight import AttemptRecord, FlightRecord


def server_timing(record: FlightRecord, attempt: AttemptRecord, now_s: float) -> bytes:
    """Returns ``Server-Timing`` for an answer whose head goes out now; milliseconds, as that header has it."""
    body_read_s = record.body_read_s or record.received_s
    admitted_s = record.admitted_s or body_read_s
    first_s = attempt.first_output_s
    return b"queue;dur=%.3f, route;dur=%.3f, connect;dur=%.3f, %b;dur=%.3f" % (
        (admitted_s - body_read_s) * 1e3,
        (attempt.chosen_s - admitted_s) * 1e3,
        ((attempt.connected_s or attempt.chosen_s) - attempt.chosen_s) * 1e3,
        b"ttft" if record.stream and first_s is not None else b"total",
        (now_s - body_read_s) * 1e3,
    )


def timing_comment(record: FlightRecord, attempt: AttemptRecord, now_s: float) -> bytes:
    """Returns the SSE comment that goes out before ``[DONE]``: safe for every client, easy to grep."""
    body_read_s = record.body_read_s or record.received_s
    ttft_s = record.ttft_s or 0.0
    return b": weir endpoint=%b attempts=%d ttft_ms=%.1f longest_gap_ms=%.1f total_ms=%.1f chunks=%d\n\n" % (
        attempt.endpoint_id.encode("ascii"),
        len(record.attempts),
        ttft_s * 1e3,
        record.longest_gap_s * 1e3,
        (now_s - body_read_s) * 1e3,
        record.chunks,
    )
