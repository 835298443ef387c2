"""JSON as engines write it: read tolerantly, written faithfully, and looked into without trust."""

from __future__ import annotations

import json
from typing import Any, cast

import orjson

from .failures import MalformedStream

Json = dict[str, Any]


def read_json(payload: bytes) -> Any:
    """Parses JSON; also the ``NaN`` and ``Infinity`` that engines write into logprobs.

    Raises:
        ValueError: Not JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        try:
            return json.loads(payload)
        except RecursionError as error:
            raise ValueError("JSON nested too deeply") from error


def read_json_object(payload: bytes) -> Json | None:
    """Parses JSON; None if it is not JSON, or no object."""
    try:
        return as_object(read_json(payload))
    except ValueError:
        return None


def write_json(value: Any, source: bytes) -> bytes:
    """Writes what was read from ``source`` and changed since; NaN and Infinity come out as they came in.

    Raises:
        MalformedStream: It is nested so deeply that it can be read and not written.
    """
    if b"NaN" not in source and b"Infinity" not in source:  # orjson would write null for them
        try:
            return orjson.dumps(value)
        except TypeError:  # lone surrogates, numbers above 64 bits: half an emoji is no reason to lose an answer
            pass
    try:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    except RecursionError as error:
        raise MalformedStream("JSON nested too deeply") from error


def as_object(value: Any) -> Json | None:
    """The value if it is an object, else None."""
    return cast(Json, value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """The value if it is a list, else None."""
    return value if isinstance(value, list) else None  # pyright: ignore[reportUnknownVariableType]


def objects(value: Any) -> list[Json]:
    """The objects among the items of a list; none if it is no list."""
    return [cast(Json, item) for item in as_list(value) or () if isinstance(item, dict)]
