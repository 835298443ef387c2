"""Traces and scenarios: who asks what and when, of which fleet, and what goes wrong.

Arrival times are scaled to reach a load; order and bursts stay. The last 20 minutes of a trace are held out: tune on
the rest.
"""

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from .engine import PROFILES, Engine, Loop, Profile, Request

TRACES = Path(__file__).resolve().parent / "traces"
HELD_OUT_S = 1200.0


class Call(NamedTuple):
    """One line of a trace."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


Trace = tuple[Call, ...]


@lru_cache
def azure(kind: str) -> Trace:
    with gzip.open(TRACES / f"azure_{kind}_2023.csv.gz", "rt") as file:
        rows = [(datetime.fromisoformat(r["TIMESTAMP"][:26]), r) for r in csv.DictReader(file)]
    start = rows[0][0]
    return tuple(
        Call((t - start).total_seconds(), max(2, int(r["ContextTokens"])), max(1, int(r["GeneratedTokens"])))
        for t, r in rows
    )


@lru_cache
def azure_both() -> Trace:
    return tuple(sorted((*azure("conv"), *azure("code"))))


@lru_cache
def mooncake() -> Trace:
    with gzip.open(TRACES / "mooncake_conversation.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return tuple(
        Call(r["timestamp"] / 1000, max(2, r["input_length"]), max(1, r["output_length"]), tuple(r["hash_ids"]))
        for r in rows
    )


@lru_cache
def hot_prefix() -> Trace:
    """From a third of each part on, 30 % of the calls begin with one 8k-token prefix, another one in each part."""
    random, trace, split = Random("hot"), azure("conv"), held_out_from_s(azure("conv"))
    calls: list[Call] = []
    for call in trace:
        held_out = call.at_s >= split
        begin, end = (split, trace[-1].at_s) if held_out else (0.0, split)
        hot = call.at_s >= begin + (end - begin) / 3 and random.random() < 0.3
        blocks = tuple(range(1000 * (1 + held_out), 1000 * (1 + held_out) + 16))
        calls.append(call._replace(prompt_tokens=8192 + call.prompt_tokens, blocks=blocks) if hot else call)
    return tuple(calls)


@lru_cache
def bimodal() -> Trace:
    random = Random("bimodal")
    return tuple(c._replace(output_tokens=1500 if random.random() < 0.1 else 30) for c in azure("conv"))


@lru_cache
def six_tenants() -> Trace:
    """Six times Mooncake's conversations, each with prefixes of its own and begun at another point of either part."""
    trace, split = mooncake(), held_out_from_s(mooncake())
    own = max(max(call.blocks) for call in trace) + 1
    calls: list[Call] = []
    for call in trace:
        begin, end = (split, trace[-1].at_s) if call.at_s >= split else (trace[0].at_s, split)
        for tenant in range(6):
            at_s = begin + (call.at_s - begin + tenant * (end - begin) / 6) % (end - begin)
            blocks = tuple([tenant * own + block for block in call.blocks])
            calls.append(call._replace(at_s=at_s, blocks=blocks))
    return tuple(sorted(calls))


def held_out_from_s(trace: Trace) -> float:
    return trace[-1].at_s - HELD_OUT_S


@dataclass(frozen=True, slots=True)
class Fault:
    """One endpoint misbehaves in both parts, ``begin`` to ``begin + share`` of each; ``slow`` 0 means it is dead."""

    endpoint: int
    slow: float
    begin: float = 0.3
    share: float = 0.35
    longest_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    fleet: tuple[str, ...]
    trace: Callable[[], Trace]
    gateways: int = 1
    fault: Fault | None = None


_EQUAL = ("vllm",) * 8
_MIXED = ("vllm",) * 4 + ("vllm-half",) * 2 + ("tgi", "ollama")
SCENARIOS = {
    s.name: s
    for s in (
        Scenario("S1", "eight equal vLLM, Azure conversation", _EQUAL, lambda: azure("conv")),
        Scenario("S2", "mixed fleet, Azure conversation + code", _MIXED, azure_both),
        Scenario("S3", "mixed fleet, Mooncake conversation", _MIXED, mooncake),
        Scenario("S4", "hot 8k prefix appears in 30 % of requests", _EQUAL, hot_prefix),
        Scenario("S5", "one endpoint 3x slower for a while", _EQUAL, lambda: azure("conv"), fault=Fault(2, 3.0)),
        Scenario(
            "S6", "one endpoint dies, returns cold", _EQUAL, lambda: azure("conv"), fault=Fault(2, 0.0, share=0.2)
        ),
        Scenario("S7", "outputs 90 % 30 and 10 % 1,500 tokens", _EQUAL, bimodal),
        Scenario("S8", "S2 behind four gateways", _MIXED, azure_both, gateways=4),
        Scenario(
            "S10",
            "one endpoint all but hangs for a while",
            _EQUAL,
            lambda: azure("conv"),
            fault=Fault(2, 100.0, share=0.05),
        ),
        Scenario("S11", "48 engines, six tenants with Mooncake's conversations", _MIXED * 6, six_tenants),
        Scenario("S9", "S2 on physically plausible A100s", ("vllm-real",) * 4 + ("tgi",) * 3 + ("ollama",), azure_both),
    )
}


class _Count:
    """A sink that remembers completion times."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.ends_s = loop, list[float]()

    def first_token(self, request: Request) -> None: ...
    def failed(self, request: Request) -> None: ...

    def finished(self, request: Request) -> None:
        self.ends_s.append(self.loop.now_s)


@lru_cache(maxsize=256)
def capacity_rps(profile: Profile, trace: Trace) -> float:
    """Completions per second of one engine that always has work: a random eighth of the tunable part, in order."""
    random, split = Random("capacity"), held_out_from_s(trace)
    calls = [c for c in trace if c.at_s < split and random.random() < 1 / 8][: 200 if profile.max_seqs < 16 else 1200]
    loop = Loop()
    sink = _Count(loop)
    engine = Engine(0, profile, loop, sink)
    for call in calls:
        engine.submit(Request(0.0, call.prompt_tokens, call.output_tokens, call.blocks))
    loop.run()
    low, high = len(calls) // 5, len(calls) * 3 // 5  # past the first wave, before the last one drains
    return (high - low) / (sink.ends_s[high] - sink.ends_s[low])


@dataclass(frozen=True, slots=True)
class Workload:
    requests: list[Request]
    held_out_from_s: float
    end_s: float
    stretch: tuple[float, float]  # simulated seconds per second of either part
    weights: tuple[float, ...]  # each engine's capacity, requests per second


def build(scenario: Scenario, load: float, seed: int, minutes: float | None = None) -> Workload:
    """Scales each part of the trace to ``load`` times the fleet's capacity; ``minutes`` keeps that many of either."""
    trace = scenario.trace()
    weights = tuple(capacity_rps(PROFILES[name], trace) for name in scenario.fleet)
    split_s, keep_s = held_out_from_s(trace), (minutes or 1e9) * 60
    begin_s, end_s = max(0.0, split_s - keep_s), min(trace[-1].at_s, split_s + keep_s)
    calls = [c for c in trace if begin_s <= c.at_s <= end_s]
    first = sum(c.at_s < split_s for c in calls)
    rate = load * sum(weights)
    stretch = first / rate / (split_s - begin_s), (len(calls) - first) / rate / (end_s - split_s)
    switch_s = (split_s - begin_s) * stretch[0]
    random = Random(f"{scenario.name} {seed}")
    requests = [
        Request(
            (c.at_s - begin_s) * stretch[0] if c.at_s < split_s else switch_s + (c.at_s - split_s) * stretch[1],
            c.prompt_tokens,
            c.output_tokens,
            c.blocks,
            gateway=random.randrange(scenario.gateways),
            estimate_tokens=max(1, round(c.prompt_tokens * random.uniform(0.8, 1.2))),
            held_out=c.at_s >= split_s,
        )
        for c in calls
    ]
    return Workload(requests, switch_s, switch_s + (end_s - split_s) * stretch[1], stretch, weights)
