"""One sentence that says why a request took as long as it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import RequestTooSlow, ShuttingDown
from ..flight import AttemptRecord, FlightRecord
from .phase import Phase, PhaseName
from .phases import hedged_by, wall_s

MOST_CLAUSES = 3
# A part is worth a word from this share of the time on, or the largest one if none is.
_WORTH_RATIO = 0.1
# A pause in a stream is worth one if it is this much longer than the mean gap, and this long.
_PAUSE_TIMES = 5
_PAUSE_S = 0.1


def verdict(record: FlightRecord, parts: Sequence[Phase]) -> str:
    """Returns the sentence for a closed record and its phases."""
    total_s = wall_s(record)
    by_length = sorted([part for part in parts if not _is_unasked(record, part)], key=lambda part: -part.duration_s)
    worth = [part for part in by_length if part.duration_s >= _WORTH_RATIO * total_s][:MOST_CLAUSES]
    told = "; ".join(_clause(record, part) for part in worth or by_length[:1])
    return f"{_ending(record, total_s)}: {told}" if told else _ending(record, total_s)


def _is_unasked(record: FlightRecord, part: Phase) -> bool:
    """Whether it is the wait for a body that was refused unread, for which its client is not to blame."""
    refused = record.outcome == "client_error" and record.status != RequestTooSlow.status
    return part.name == "read" and record.body_read_s is None and refused


def written(duration_s: float) -> str:
    """Writes a duration for people: ``4.1 s``, ``320 ms``, ``0.8 ms``."""
    if duration_s >= 0.9995:
        return f"{duration_s:.1f} s"
    return f"{duration_s * 1e3:.0f} ms" if duration_s >= 0.00995 else f"{duration_s * 1e3:.1f} ms"


def _ending(record: FlightRecord, total_s: float) -> str:
    where = f" at {record.endpoint_id}" if record.attempts else ""
    match record.outcome:
        case "ok":
            return f"answered in {written(total_s)}{_parts(record)}"
        case "cancelled":
            return f"the client left after {written(total_s)}"
        case "shed" if record.error_type == ShuttingDown.error_type:
            return f"ended{where} after {written(total_s)}, as Weir was being stopped"
        case "shed":
            return f"refused after {written(total_s)}, as no endpoint could take it"
        case "client_error":
            return f"refused after {written(total_s)} with status {_status(record)}, the request's own fault"
        case _:
            why = record.error_type or record.outcome
            return f"failed{where} with {why} after {written(total_s)}{_not_resumed(record)}"


def _status(record: FlightRecord) -> int:
    """What was refused with: the engine's own word, where a keep-alive had begun a 200 before."""
    said = record.final.status if record.status == 200 and record.final is not None else None
    return said or record.status


def _parts(record: FlightRecord) -> str:
    """Who broke a resumed answer off, and who went on."""
    if not record.resumed:
        return ""
    gave = [attempt for attempt in record.attempts if attempt.gave]
    broke = ", ".join(f"{attempt.endpoint_id}: {attempt.error_type or attempt.outcome}" for attempt in gave[:-1])
    went_on = ", ".join(attempt.endpoint_id for attempt in gave[1:])
    return f", resumed at {went_on} after it had broken off ({broke})"


def _not_resumed(record: FlightRecord) -> str:
    """Why nobody went on with an answer that broke off, and who had been asked to."""
    if not record.not_resumed:
        return ""
    final, attempts = record.final, record.attempts
    last = next((at for at, attempt in enumerate(attempts) if attempt is final), 0)
    vain = ", ".join(f"{each.endpoint_id}: {each.error_type or each.outcome}" for each in attempts[last + 1 :])
    asked = f"asked in vain: {vain}; " if vain else ""
    return f", not resumed ({asked}{record.not_resumed})"


def _clause(record: FlightRecord, part: Phase) -> str:
    clause = _CLAUSES[part.name](record, written(part.duration_s))
    return clause if part.source == "measured" else f"{clause} (inferred)"


def _engine_queue(record: FlightRecord, took: str) -> str:
    attempt = _final(record)
    load, ours = attempt.load.load, attempt.in_flight - 1
    clause = f"waited {took} in {attempt.endpoint_id}'s queue"
    if load.waiting:
        clause += f" behind {load.waiting} requests" if load.waiting > 1 else " behind one request"
        if load.running:
            clause += f", while it ran {load.running}"
    elif ours > 0:
        clause += _beside(ours)
    return clause


def _engine_wait(record: FlightRecord, took: str) -> str:
    ours = _final(record).in_flight - 1
    beside = _beside(ours) if ours > 0 else ""
    return f"waited {took} for {_at(record)}, which does not say for what{beside}"


def _beside(ours: int) -> str:
    return f", with {ours} more of Weir's requests there" if ours > 1 else ", with one more of Weir's requests there"


def _prefill(record: FlightRecord, took: str) -> str:
    tokens = record.usage.prompt_tokens if record.usage is not None else 0
    return f"prefill took {took}" + (f" for {tokens} tokens" if tokens else "")


def _decode(record: FlightRecord, took: str) -> str:
    usage = record.usage
    tokens = usage.completion_tokens if usage is not None else record.chunks
    clause = f"decode took {took}"
    if record.resumed:
        return f"{clause} for {tokens} tokens at {sum(each.gave for each in record.attempts)} endpoints"
    final = _final(record)
    if tokens > 1 and (first_s := final.first_output_s) is not None and record.done_s is not None:
        last_s = record.last_output_s or final.ended_s or record.done_s
        token_s = max(last_s - first_s, 0.0) / (tokens - 1)
        clause += f" for {tokens} tokens, {written(token_s)} each"
        if record.longest_gap_s >= max(_PAUSE_S, _PAUSE_TIMES * token_s):
            clause += f", with a pause of {written(record.longest_gap_s)}"
    elif tokens:
        clause += f" for {tokens} tokens"
    return clause


def _retries(record: FlightRecord, took: str) -> str:
    final, beside = record.final, hedged_by(record)
    failed = [
        attempt
        for attempt in record.attempts
        if not (attempt.lost or attempt is final or attempt is beside or attempt.gave or attempt.resumes)
    ]
    causes = ", ".join(f"{attempt.endpoint_id}: {attempt.error_type or attempt.outcome}" for attempt in failed)
    return f"lost {took} to {len(failed)} failed attempt{'s' if len(failed) > 1 else ''} ({causes})"


def _hedge_wait(record: FlightRecord, took: str) -> str:
    beside = hedged_by(record)
    where = "" if beside is None else f" for {beside.endpoint_id}"
    return f"waited {took}{where} until {_at(record)} was asked beside it (hedging)"


def _resume(record: FlightRecord, took: str) -> str:
    clause = f"going on at another endpoint took {took}"
    return clause if record.attempts[-1].gave else f"{clause}, in the end in vain"


def _final(record: FlightRecord) -> AttemptRecord:
    """Only what has an attempt has a part that asks for it."""
    return record.final or record.attempts[-1]


def _at(record: FlightRecord) -> str:
    return record.endpoint_id


_CLAUSES: Mapping[PhaseName, Callable[[FlightRecord, str], str]] = {
    "read": lambda _, took: f"the client took {took} to send its body",
    "queue": lambda _, took: f"waited {took} in Weir's queue",
    "route": lambda _, took: f"choosing an endpoint took {took}",
    "retries": _retries,
    "hedge_wait": _hedge_wait,
    "connect": lambda record, took: f"connecting to {_at(record)} took {took}",
    "engine_wait": _engine_wait,
    "engine_queue": _engine_queue,
    "engine_load": lambda record, took: f"{_at(record)} loaded the model for {took}",
    "prefill": _prefill,
    "engine_other": lambda record, took: f"{took} before {_at(record)}'s first output are in none of its own times",
    "decode": _decode,
    "resume": _resume,
    "client_write_wait": lambda _, took: f"the client took nothing for {took}",
    "gateway": lambda _, took: f"Weir itself took {took}",
}
