"""A closed record as bytes, and back: its fields by name, so that older and newer versions read each other's."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson

from adapters.engine_load import EngineLoad
from adapters.types import EngineTimings, Usage

from ..fleet import NO_SAMPLE, LoadSample
from ..flight import AttemptRecord, FlightRecord

_RECORD = frozenset(field.name for field in fields(FlightRecord))
_ATTEMPT = frozenset(field.name for field in fields(AttemptRecord))


def dump(record: FlightRecord) -> bytes:
    return orjson.dumps(record, default=_plain)


def load(data: bytes) -> FlightRecord:
    """Reads what ``dump`` wrote; fields that this version does not know are left out.

    Raises:
        ValueError: It is no record.
    """
    try:
        told: dict[str, Any] = orjson.loads(data)
        told = {name: value for name, value in told.items() if name in _RECORD}
        told["attempts"] = [_attempt(attempt) for attempt in told["attempts"]]
        told["usage"] = _named(Usage, told.get("usage"))
        return FlightRecord(**told)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("not a flight record") from error


def _attempt(told: dict[str, Any]) -> AttemptRecord:
    told = {name: value for name, value in told.items() if name in _ATTEMPT}
    told["timings"] = _named(EngineTimings, told.get("timings"))
    sample = _named(LoadSample, told.get("load")) or NO_SAMPLE
    told["load"] = sample._replace(load=_named(EngineLoad, sample.load) or EngineLoad())
    return AttemptRecord(**told)


def _named(kind: Any, values: Any) -> Any:
    """A named tuple of its values in order; what an older version did not have keeps its default."""
    return None if values is None else kind(*values[: len(kind._fields)])


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)  # orjson writes plain tuples only  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, bytes):
        return value.decode("ascii")
    raise TypeError(type(value))
