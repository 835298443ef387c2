"""Closed flight records, made up: a stream that was read at 0, sent at 0.02, and whose phases a test changes."""

from __future__ import annotations

from typing import Any

from adapters.engine_load import EngineLoad
from adapters.types import Usage
from gateway.flight import AttemptRecord, FlightRecord
from gateway.probing.load_sample import LoadSample

T0_S = 1000.0
UNIX_S = 1_787_300_000.0


def attempt(**changes: Any) -> AttemptRecord:
    """A good attempt; times count from the request's head."""
    marks: dict[str, Any] = {
        "endpoint_id": "m-0",
        "reason": "fewest in flight: 0",
        "chosen_s": 0.01,
        "connected_s": 0.015,
        "sent_s": 0.02,
        "head_s": 0.1,
        "first_output_s": 0.5,
        "ended_s": 1.5,
        "status": 200,
        "outcome": "ok",
        "engine": "vllm",
        "in_flight": 2,
        **changes,
    }
    times = [name for name in marks if name.endswith("_s") and not name.startswith("expected_")]
    marks |= {name: _at(marks[name]) for name in times}
    return AttemptRecord(**marks)


def loaded(waiting: int | None, running: int | None = None, age_s: float = 1.0) -> LoadSample:
    """What an engine said that long before the usual attempt was chosen."""
    return LoadSample(EngineLoad(running=running, waiting=waiting), T0_S + 0.01 - age_s)


def flight(
    *attempts: AttemptRecord, request_id: str = "r1", received_unix_s: float = UNIX_S, **changes: Any
) -> FlightRecord:
    """A record with these attempts, or a good one; marks count from its head."""
    marks = {
        "body_read_s": 0.002,
        "queued_s": 0.003,
        "admitted_s": 0.003,
        "first_output_s": 0.501,
        "last_output_s": 1.4,
        "done_s": 1.51,
    }
    usual: dict[str, Any] = {
        "operation": "chat",
        "pool": "m",
        "model": "m",
        "stream": True,
        "usage": Usage(100, 21),
        "chunks": 21,
        "status": 200,
        "outcome": "ok",
        "longest_gap_s": 0.06,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }
    fields: dict[str, Any] = {**usual, **marks, **changes} | {
        name: _at(changes.get(name, at_s)) for name, at_s in marks.items()
    }
    tried = list(attempts) or [attempt()]
    return FlightRecord(request_id, "POST", "/v1/chat/completions", T0_S, received_unix_s, tried, **fields)


def _at(offset_s: float | None) -> float | None:
    return None if offset_s is None else T0_S + offset_s
