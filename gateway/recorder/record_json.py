"""Closed records as bytes, and back: JSON arrays of their fields in order, which is a third of the work of objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

import orjson

from adapters.engine_load import EngineLoad
from adapters.types import EngineTimings, Usage
from policies.types import EndpointSnapshot

from ..flight import AttemptRecord, FlightRecord, Stall
from ..probing.load_sample import LoadSample
from . import decision_json
from .decision_json import Snapshots, plain

LEFT_OUT: Final = ("answer", "caller", "content", "traceparent", "tracestate")
"""What was said, what clients and engines were told and nobody asks for afterwards, and what only traces tell."""

# What needs a word of its own, behind the fields that JSON has.
_OF_RECORD: Final = ("attempts", "usage")
_OF_ATTEMPT: Final = ("timings", "load", "joined", "stalls", "decision")
_RECORD: Final = tuple(field.name for field in fields(FlightRecord) if field.name not in (*_OF_RECORD, *LEFT_OUT))
_ATTEMPT: Final = tuple(field.name for field in fields(AttemptRecord) if field.name not in (*_OF_ATTEMPT, *LEFT_OUT))
_record_values = attrgetter(*_RECORD)
_attempt_values = attrgetter(*_ATTEMPT)

FIELDS: Final = (*_RECORD, *_OF_RECORD, *_ATTEMPT, *_OF_ATTEMPT)
SHAPE: Final = (*FIELDS, *decision_json.FIELDS)
"""What the arrays hold: a file that was written with other fields cannot be read."""


def dump(records: Sequence[FlightRecord]) -> bytes:
    snapshots = Snapshots()
    told = [_plain(record, snapshots) for record in records]
    return orjson.dumps((snapshots.abilities, snapshots.rows, told))


def load(data: bytes) -> list[FlightRecord]:
    """Reads what ``dump`` wrote.

    Raises:
        ValueError: It is something else.
    """
    try:
        abilities, rows, records = orjson.loads(data)
        known = decision_json.endpoints(abilities, rows)
        return [_record(known, *told) for told in records]
    except (TypeError, AttributeError, LookupError) as error:
        raise ValueError("no flight records") from error


def _plain(record: FlightRecord, snapshots: Snapshots) -> tuple[Any, ...]:
    usage = record.usage
    attempts = [
        (
            _attempt_values(attempt),
            None if attempt.timings is None else tuple(attempt.timings),
            (tuple(attempt.load.load), attempt.load.asked_s),
            attempt.joined,
            [tuple(stall) for stall in attempt.stalls],
            None if attempt.decision is None else plain(attempt.decision, snapshots),
        )
        for attempt in record.attempts
    ]
    return _record_values(record), attempts, None if usage is None else tuple(usage)


def _record(
    known: list[EndpointSnapshot], values: list[Any], attempts: list[Any], usage: list[Any] | None
) -> FlightRecord:
    return FlightRecord(
        **dict(zip(_RECORD, values, strict=True)),
        attempts=[_attempt(known, *told) for told in attempts],
        usage=None if usage is None else Usage(*usage),
    )


def _attempt(
    known: list[EndpointSnapshot],
    values: list[Any],
    timings: list[Any] | None,
    load: list[Any],
    joined: list[Any] | None,
    stalls: list[Any],
    decision: list[Any] | None,
) -> AttemptRecord:
    figures, asked_s = load
    return AttemptRecord(
        **dict(zip(_ATTEMPT, values, strict=True)),
        timings=None if timings is None else EngineTimings(*timings),
        load=LoadSample(EngineLoad(*figures), asked_s),
        joined=None if joined is None else (joined[0], joined[1]),
        stalls=tuple(Stall(*stall) for stall in stalls),
        decision=None if decision is None else decision_json.decision(decision, known),
    )
