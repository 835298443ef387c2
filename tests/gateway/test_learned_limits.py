"""Silences that a pool has never heard of end an attempt sooner, if later ones have overtaken it, and else never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.client_link import ClientLink
from gateway.config import PoolConfig, TimeoutsConfig
from gateway.deadlines import Deadlines
from gateway.flight import AttemptRecord, FlightRecord, Role
from gateway.instruments.histogram import GAP, Histogram
from gateway.lessons import learn_waits
from gateway.own_load import OwnLoad
from gateway.pool import Pool
from gateway.relay import Relay, TimedOut
from gateway.upstream.contract import Exchange
from policies import usual_waits
from policies.usual_waits import SilenceLimits, UsualWaits
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    hang,
    head,
    in_turn,
    json_answer,
    role,
    tok,
)

STEADY: dict[str, Any] = {"failures": 1000, "interval": "1h"}
SAMPLES = 10


# --- on a clock of its own


class _Link:
    """A client that takes everything."""

    write_chunk = None
    flow = None
    gone = started = finished = blocked = False

    def write(self, data: bytes) -> None:
        """Takes it."""


@dataclass
class _Exchange:
    sent_s: float
    connected_s: float
    reused: bool = True


@dataclass
class Silent:
    """An attempt that was sent at 0 and says nothing, with limits of 10 s."""

    own: OwnLoad = field(default_factory=OwnLoad)

    def __post_init__(self) -> None:
        self.lease = self.own.lease(10, 10, 0.0)
        self.relay = Relay(
            FlightRecord("id", "POST", "/", 0.0, 0.0, []),
            AttemptRecord("e", "", 0.0),
            cast("ClientLink", _Link()),
            TimeoutsConfig(),
            Histogram(GAP),
            Deadlines(),
            1.0,
            self.lease,
            SilenceLimits(10.0, 10.0),
        )
        self.relay.sent(cast("Exchange", _Exchange(0.0, 0.0)), stream=True)

    def others_output(self, taken_s: float) -> None:
        """Another attempt at the endpoint, taken then, has its first output."""
        with self.own.lease(10, 10, taken_s) as other:
            other.first_output(taken_s, taken_s)

    def ended_at(self, *looks_s: float) -> float | None:
        """Lets the time pass in these steps; returns the one at which it was ended."""
        for now_s in looks_s:
            self.relay.on_due(now_s)
            if self.relay.failure is not None:
                return now_s
        return None


async def test_one_that_others_overtook_gets_the_limit_twice() -> None:
    silent = Silent()
    silent.others_output(1.0)
    assert silent.ended_at(9.0, 10.0, 15.0, 19.0) is None
    assert silent.ended_at(20.5) == 20.5
    assert isinstance(silent.relay.failure, TimedOut)
    assert (silent.relay.failure.timer, silent.relay.failure.learned) == ("first_token", True)


async def test_a_load_or_a_queue_in_which_nobody_overtakes_gets_the_configured_limit() -> None:
    silent = Silent()
    silent.others_output(-1.0)
    assert silent.ended_at(*range(1, 60)) is None
    assert silent.ended_at(61.0) == 61.0
    assert isinstance(silent.relay.failure, TimedOut)
    assert (silent.relay.failure.timer, silent.relay.failure.learned) == ("first_token", False)


async def test_when_all_begin_at_once_after_a_long_load_the_first_in_line_is_not_ended() -> None:
    silent = Silent()
    assert silent.ended_at(10.0, 20.0, 25.0) is None
    silent.others_output(5.0)  # a moment before its own
    assert silent.ended_at(25.1, 30.0, 35.0) is None
    assert silent.ended_at(35.2) == 35.2


@pytest.mark.parametrize(("endpoints", "learn", "learns"), [(1, True, False), (2, True, True), (2, False, False)])
def test_limits_are_learned_where_another_endpoint_could_be_tried(endpoints: int, learn: bool, learns: bool) -> None:
    urls = ["http://127.0.0.1:9"] * endpoints
    made = PoolConfig.model_validate({"name": "m", "timeouts": {"learn": learn}, "endpoints": urls})
    named = tuple(e.model_copy(update={"id": str(n)}) for n, e in enumerate(made.endpoints))
    pool = Pool(made.model_copy(update={"endpoints": named}))
    assert pool.learns_limits is learns
    assert (pool.usual is not None) is learns


@pytest.mark.parametrize(("role", "samples"), [("primary", 1), ("hedge", 0)])
def test_a_first_attempt_that_lost_counts_as_slow_and_a_second_one_not_at_all(role: Role, samples: int) -> None:
    usual = UsualWaits()
    record = FlightRecord("id", "POST", "/", 0.0, 0.0, [], operation="chat", stream=True)
    lost = AttemptRecord("e", "", 1.0, sent_s=1.0, ended_s=1.5, outcome="cancelled", role=role, lost=True)
    learn_waits(usual, lost, record, 10)
    learnt = usual.first_outputs(True, 10)
    assert (0 if learnt is None else learnt.samples) == samples


def test_what_lies_between_two_engines_is_no_usual_gap() -> None:
    usual = UsualWaits()
    record = FlightRecord("id", "POST", "/", 0.0, 0.0, [], operation="chat", stream=True, chunks=9, longest_gap_s=60.0)
    went_on = AttemptRecord("e", "", 1.0, sent_s=1.0, first_output_s=1.1, ended_s=1.5, outcome="ok", resumes=True)
    for _ in range(usual_waits.SAMPLES_NEEDED):
        learn_waits(usual, went_on, record, 10)
    limits = usual.limits(True, 10)
    assert limits is not None
    assert limits.stall_s == float("inf")


# --- on sockets


@asynccontextmanager
async def taught(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Request], Script]
) -> AsyncGenerator[tuple[RunningGateway, ScriptedUpstream]]:
    """A gateway that knows endpoint a, with limits of half a second; b asks for patience, and answers later."""
    monkeypatch.setattr(usual_waits, "SAMPLES_NEEDED", SAMPLES)
    monkeypatch.setattr(usual_waits, "LEAST_S", 0.5)
    monkeypatch.setattr(usual_waits, "FACTOR", 0.0)
    busy = json_answer({"error": {"message": "later"}}, 429, ("retry-after", "60"))
    async with ScriptedUpstream(answer) as a, ScriptedUpstream(in_turn(busy, chat_stream("from b"))) as b:
        options = {"health": STEADY, "timeouts": {"learn": True}}
        endpoints = [{"id": "a", "url": a.url}, {"id": "b", "url": b.url}]
        async with running_gateway(config(*endpoints, pool_options=options)) as gw:
            for _ in range(SAMPLES + 1):
                assert (await gw.post(r0())).content() == "ab"
            yield gw, a


def said(request: Request) -> str:
    content: str = request.json()["messages"][0]["content"]
    return content


async def overtaken(gw: RunningGateway, a: ScriptedUpstream) -> Reply:
    """Sends a request that gets stuck at a, and then others there, until it is over."""
    before = len(a.requests)
    stuck = asyncio.ensure_future(gw.post(r0(messages=[{"role": "user", "content": "xx"}])))
    await a.arrived(before + 1)
    while not stuck.done():
        assert (await gw.post(r0())).status == 200
        await asyncio.sleep(0.01)
    return await stuck


async def test_a_stuck_request_is_tried_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> Script:
        return [head(200, "sse"), role(), hang()] if said(request) == "xx" else chat_stream()

    async with taught(monkeypatch, answer) as (gw, a):
        reply = await overtaken(gw, a)
        assert reply.content() == "from b"
        assert reply.header("x-weir-attempts") == "2"
        assert await gw.total("weir_endpoint_errors_total", endpoint="a", error_type="first_token_timeout") == 1


async def test_a_stuck_stream_is_ended_with_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> Script:
        return [head(200, "sse"), role(), tok("a"), tok("b"), hang()] if said(request) == "xx" else chat_stream()

    async with taught(monkeypatch, answer) as (gw, a):
        reply = await overtaken(gw, a)
        assert reply.content() == "ab"
        assert not reply.done
        assert reply.stream_error is not None
        assert "timeouts.learn" in reply.stream_error["message"]
        assert await gw.total("weir_endpoint_errors_total", endpoint="a", error_type="stall_timeout") == 1
