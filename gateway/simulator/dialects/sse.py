"""Frames of event streams."""

from __future__ import annotations

import json

import orjson

from gateway.simulator.transcript import Fields

DONE = b"data: [DONE]\n\n"


def frame(payload: Fields) -> bytes:
    """Returns one event, its JSON compact."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def spaced(payload: Fields) -> bytes:
    """Returns JSON with a space after each colon and comma, as Python's own module writes it."""
    return json.dumps(payload, ensure_ascii=False).encode()
