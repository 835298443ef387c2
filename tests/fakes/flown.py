"""Flight records made by hand, and what an exposition says of them."""

from __future__ import annotations

import math
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as read_text

from adapters.types import Usage
from gateway.config import Config, EndpointConfig, PoolConfig
from gateway.fleet import Fleet
from gateway.flight import AttemptRecord, FlightRecord
from gateway.metrics import Metrics

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def fleet(*engines: str, pool: str = "m") -> Fleet:
    """One pool with an endpoint for each engine: e0, e1 and so on."""
    endpoints = tuple(
        EndpointConfig.model_validate({"url": "http://127.0.0.1:9", "engine": engine, "id": f"e{n}"})
        for n, engine in enumerate(engines or ("vllm",))
    )
    return Fleet(Config(pools={pool: PoolConfig(endpoints=endpoints)}))


def record(**changes: Any) -> FlightRecord:
    """A request that ended well after a second."""
    made = FlightRecord("id-1", "POST", "/v1/chat/completions", 10.0, 1_700_000_000.5, [])
    for name, value in {
        "outcome": "ok",
        "done_s": 11.0,
        "operation": "chat",
        "pool": "m",
        "model": "m",
        **changes,
    }.items():
        setattr(made, name, value)
    return made


def fly(metrics: Metrics, *, ttft_s: float = 0.2, endpoint: str = "e0", **changes: Any) -> FlightRecord:
    """Lets the metrics see a whole stream; returns its record."""
    first_s = 10.1 + ttft_s
    attempt = AttemptRecord(
        endpoint, "why", 10.1, connected_s=10.1, sent_s=10.1, first_output_s=first_s, ended_s=10.9, outcome="ok"
    )
    flown = record(
        **{
            "stream": True,
            "body_read_s": 10.1,
            "admitted_s": 10.1,
            "first_output_s": first_s,
            "last_output_s": 10.9,
            "longest_gap_s": 0.05,
            "usage": Usage(7, 4),
            "attempts": [attempt],
            **changes,
        }
    )
    metrics.observe((flown,))
    return flown


def families(text: str) -> list[Metric]:
    """Parses either form with prometheus_client."""
    openmetrics: Any = openmetrics_parser  # the library leaves it without types
    return list((openmetrics.text_string_to_metric_families if text.endswith("# EOF\n") else read_text)(text))


def samples(text: str) -> Samples:
    """Every sample by name and labels; a duplicate fails."""
    found: Samples = {}
    for family in families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def total(read: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of that name with these labels."""
    return math.fsum(
        value for (key, have), value in read.items() if key == name and labels.items() <= dict(have).items()
    )
