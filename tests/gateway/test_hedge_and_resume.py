"""A hedged request whose stream breaks off, and one that goes on: who answered, who failed, and what is left open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway import proxy, resume
from gateway.flight import FlightRecord
from gateway.metrics import Metrics
from gateway.resume import Resumes
from policies import hedging
from tests.fakes.endpoint_health import becomes
from tests.fakes.flights import Flights, watched_flights
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import (
    Answer,
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    chunk,
    delta,
    done,
    eof,
    event,
    eventually,
    fin,
    gate,
    hang,
    head,
    joined,
    json_answer,
    raw,
    role,
    rst,
    tok,
    usage,
)
from tests.fakes.storyteller import storyteller

SAMPLES = 8
STORY = ["Once", " upon", " a", " time", "."]
FAILED = json_answer({"error": {"message": "engine trouble", "code": 500}}, 500)
REFUSED = json_answer({"error": {"message": "no such thing", "code": 400}}, 400)


@pytest.fixture(autouse=True)
def quick_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedging, "SAMPLES_NEEDED", SAMPLES)


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Generator[list[Resumes]]:
    """When all is over, no prompt is kept."""
    made: list[Resumes] = []

    class Watched(Resumes):
        def __init__(self, metrics: Metrics) -> None:
            super().__init__(metrics)
            made.append(self)

    monkeypatch.setattr(proxy, "Resumes", Watched)
    yield made
    assert [each.room.held_bytes for each in made] == [0] * len(made)


@pytest.fixture
def flights(monkeypatch: pytest.MonkeyPatch) -> Flights:
    return watched_flights(monkeypatch)


class Engines:
    """Some endpoints that answer at once, until a test says by the order of coming what each request gets."""

    def __init__(self, gw: RunningGateway) -> None:
        self.gw = gw
        self.upstreams: dict[str, ScriptedUpstream] = {}
        self.order: list[str] = []
        self._then: list[Script | Answer] | None = None

    def answer(self, name: str, request: Request) -> Script:
        if request.target == "/tokenize" or self._then is None:
            return storyteller(STORY)(request)
        self.order.append(name)
        then = self._then[min(len(self.order), len(self._then)) - 1]
        return then(request) if callable(then) else then

    def then(self, *scripts: Script | Answer) -> None:
        self.order, self._then = [], list(scripts)

    async def asked(self, count: int = 2) -> None:
        await eventually(lambda: len(self.order) >= count)

    async def record(self, reply: Reply) -> dict[str, Any]:
        told: dict[str, Any] = (await self.gw.get(f"/weir/requests/{reply.header('x-request-id')}")).json()
        return told


@asynccontextmanager
async def engines(names: str = "ab", engine: str = "llamacpp", **options: Any) -> AsyncGenerator[Engines]:
    async with AsyncExitStack() as stack:
        holder: list[Engines] = []

        def answering(name: str) -> Answer:
            return lambda request: holder[0].answer(name, request)

        upstreams = {name: await stack.enter_async_context(ScriptedUpstream(answering(name))) for name in names}
        endpoints = [{"id": name, "url": u.url, "weights": "w"} for name, u in upstreams.items()]
        hedge: Mapping[str, Any] = {"share": 0.5, "at_least": "10ms"}
        pool = {"hedge": hedge, "health": {"failures": 1000, "interval": "1h"}, **options}
        gw = await stack.enter_async_context(running_gateway(config(*endpoints, engine=engine, pool_options=pool)))
        holder.append(Engines(gw))
        holder[0].upstreams = upstreams
        for _ in range(SAMPLES):
            assert (await gw.post(r0())).content() == "".join(STORY)
        yield holder[0]


def tries(record: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    return [(a["endpoint"], a["role"], a["outcome"], a["lost"]) for a in record["attempts"]]


# --- the first attempt answers, and breaks off


@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_a_first_attempt_that_beat_its_hedge_and_broke_off_is_gone_on_with(names: str) -> None:
    go_on = asyncio.Event()
    async with engines(names) as it:
        breaks = [gate(go_on), head(200, "sse"), role(), tok(STORY[0]), tok(STORY[1]), eof()]
        it.then(breaks, [hang()], storyteller(STORY))
        asking = asyncio.ensure_future(it.gw.post(r0()))
        await it.asked()
        go_on.set()
        reply = await asking
        assert reply.stream_error is None
        assert reply.content() == "".join(STORY)
        assert reply.done
        told = await it.record(reply)
        first, second, third = it.order
        assert tries(told) == [
            (first, "primary", "upstream_error", False),
            (second, "hedge", "cancelled", True),
            (third, "primary", "ok", False),
        ]
        assert told["endpoint"] == third
        metrics = await it.gw.at_rest()
        assert metrics.total("weir_resumes_total", result="resumed") == 1
        assert metrics.values("weir_hedges_total", result="lost") == [1]
        assert metrics.total("weir_requests_total", outcome="ok") == SAMPLES + 1


async def test_a_first_attempt_that_beat_its_hedge_and_broke_off_is_told_as_that() -> None:
    go_on = asyncio.Event()
    async with engines(resume=False) as it:
        it.then([gate(go_on), head(200, "sse"), role(), tok("x"), eof()], [hang()])
        asking = asyncio.ensure_future(it.gw.post(r0()))
        await it.asked()
        go_on.set()
        reply = await asking
        assert reply.content() == "x"
        assert reply.stream_error is not None
        assert "resume is off" in reply.stream_error["message"]
        metrics = await it.gw.at_rest()
        assert metrics.total("weir_requests_total", outcome="upstream_error") == 1
        assert (await it.record(reply))["endpoint"] == it.order[0]


async def test_an_answer_in_one_piece_that_broke_off_is_asked_for_where_the_hedge_had_been() -> None:
    """llama.cpp streams what the client wants whole: the first output decides, and nothing has gone out yet."""
    go_on = asyncio.Event()
    async with engines(names="ab") as it:
        for _ in range(SAMPLES):
            await it.gw.post(r0(stream=False))
        it.then([gate(go_on), head(200, "sse"), role(), tok("x"), eof()], [hang()], chat_stream("whole"))
        asking = asyncio.ensure_future(it.gw.post(r0(stream=False)))
        await it.asked()
        go_on.set()
        reply = await asking
        assert reply.status == 200, reply.body
        assert reply.json()["choices"][0]["message"]["content"] == "whole"
        assert it.order[2] == it.order[1]


async def test_the_tokens_are_those_of_the_one_that_answered() -> None:
    go_on = [asyncio.Event() for _ in range(4)]

    def answer(opened: asyncio.Event, tokens: int) -> Script:
        whole = [role(), *[tok("x")] * tokens, fin("stop"), usage(5, tokens), done()]
        return [head(200, "sse"), gate(opened), raw(joined(whole)), hang()]

    async with engines() as it:
        for opened in go_on:
            it.then(answer(opened, 2), answer(opened, 7))
            asking = asyncio.ensure_future(it.gw.post(r0()))
            await it.asked()
            opened.set()
            reply = await asking
            told = await it.record(reply)
            assert told["output_tokens"] == len(reply.content())
            assert told["endpoint"] == reply.header("x-weir-endpoint")


# --- the second attempt answers, and breaks off


@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_a_hedge_that_answered_and_broke_off_is_gone_on_with(names: str) -> None:
    async with engines(names) as it:
        it.then([hang()], storyteller(STORY, breaks_after=2), storyteller(STORY))
        reply = await it.gw.post(r0())
        assert reply.stream_error is None
        assert reply.content() == "".join(STORY)
        told = await it.record(reply)
        assert [(role, outcome, lost) for _, role, outcome, lost in tries(told)] == [
            ("primary", "cancelled", True),
            ("hedge", "upstream_error", False),
            ("primary", "ok", False),
        ]
        phases = {phase["name"]: phase["duration_s"] for phase in told["phases"]}
        assert sum(phases.values()) == pytest.approx(told["duration_s"])
        assert phases["hedge_wait"] > 0


# --- who is told of


async def test_a_hedge_that_failed_first_did_not_answer(flights: Flights) -> None:
    go_on = asyncio.Event()
    async with engines() as it:
        it.then([gate(go_on), *chat_stream("xy")], FAILED)
        asking = asyncio.ensure_future(it.gw.post(r0()))
        await it.gw.settled(lambda m: m.total("weir_endpoint_errors_total", error_type="500") == 1)
        go_on.set()
        reply = await asking
        assert reply.content() == "xy"
        told = await it.record(reply)
        first, second = it.order
        assert tries(told) == [(first, "primary", "ok", False), (second, "hedge", "upstream_error", False)]
        assert told["endpoint"] == first
        assert "retries" not in {phase["name"] for phase in told["phases"]}
        assert flights.closed[-1].endpoint_id == first


async def test_a_refusal_is_told_of_the_one_that_refused() -> None:
    go_on = asyncio.Event()
    async with engines() as it:
        it.then([gate(go_on), *REFUSED], [hang()])
        asking = asyncio.ensure_future(it.gw.post(r0()))
        await it.asked()
        go_on.set()
        reply = await asking
        assert reply.status == 400
        assert reply.header("x-weir-endpoint") == it.order[0]
        told = await it.record(reply)
        assert told["endpoint"] == it.order[0]
        assert tries(told) == [
            (it.order[0], "primary", "client_error", False),
            (it.order[1], "hedge", "cancelled", True),
        ]


# --- going on fails, or is left


async def test_going_on_in_vain_leaves_the_answer_with_the_one_that_gave_it(flights: Flights) -> None:
    async with engines() as it:
        it.then(storyteller(STORY, breaks_after=3), FAILED)
        reply = await it.gw.post(r0())
        assert reply.content() == "".join(STORY[:3])
        assert reply.stream_error is not None
        told = await it.record(reply)
        assert told["endpoint"] == it.order[0]
        assert told["output_tokens"] == 3
        assert told["verdict"].startswith(f"failed at {it.order[0]} with truncated_stream")
        names = {phase["name"] for phase in told["phases"]}
        assert "retries" not in names
        assert "resume" in names
        metrics = await it.gw.at_rest()
        assert metrics.total("weir_tokens_total", endpoint=it.order[0], type="output", source="estimate") == 3
        assert metrics.total("weir_tokens_total", endpoint=it.order[1], type="output", source="estimate") == 0


@pytest.mark.parametrize(("script", "tokens"), [([hang()], 3), ([head(200, "sse"), role(), tok(" time"), hang()], 4)])
async def test_a_client_that_leaves_while_it_goes_on_has_had_what_it_was_given(
    flights: Flights, script: Script, tokens: int
) -> None:
    async with engines(hedge={"share": 0}) as it, it.gw.connect() as client:
        it.then(storyteller(STORY, breaks_after=3), script)
        await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await it.asked()
        if tokens > 3:
            await client.read_until(b" time")
        client.reset()
        await it.gw.outcome("cancelled")
        await it.gw.at_rest()
        record: FlightRecord = flights.closed[-1]
        assert record.outcome == "cancelled"
        assert record.usage is not None
        assert record.usage.completion_tokens == tokens
        assert record.chunks == tokens


async def test_what_is_kept_is_bounded_also_when_all_begin_at_once(
    monkeypatch: pytest.MonkeyPatch, nothing_is_kept: list[Resumes]
) -> None:
    go_on, over = asyncio.Event(), asyncio.Event()
    body = r0()
    monkeypatch.setattr(resume, "ROOM_BYTES", len(json.dumps(body)) * 3 // 2)
    async with engines("abc", hedge={"share": 0}) as it:
        breaks: Script = [gate(go_on), head(200, "sse"), role(), tok(STORY[0]), gate(over), eof()]
        it.then(breaks, breaks, storyteller(STORY))
        asking = [asyncio.ensure_future(it.gw.post(body)) for _ in range(2)]
        await it.asked()
        go_on.set()
        await eventually(lambda: nothing_is_kept[0].room.held_bytes > 0)
        over.set()
        replies = await asyncio.gather(*asking)
        assert sorted(reply.stream_error is None for reply in replies) == [False, True]
        (error,) = [reply.stream_error for reply in replies if reply.stream_error is not None]
        assert "other open requests are kept already" in error["message"]


async def test_texts_are_kept_within_the_same_bound(
    monkeypatch: pytest.MonkeyPatch, nothing_is_kept: list[Resumes]
) -> None:
    """The tokens of the one leave no room, and are given up; a plain chunk is counted when one comes that is not."""
    over = asyncio.Event()
    body = r0()
    monkeypatch.setattr(resume, "ROOM_BYTES", len(json.dumps(body)) + 1000)
    async with engines("ab", hedge={"share": 0}) as it:
        more = [chunk([{"index": 0, "delta": {"content": "x" * 600}, "finish_reason": None}], extra=n) for n in (1, 2)]
        script: Script = [head(200, "sse"), role(), *map(event, more), gate(over), eof()]
        it.then(script, storyteller(STORY))
        asking = asyncio.ensure_future(it.gw.post(body))
        await it.asked(1)
        await eventually(lambda: 0 < nothing_is_kept[0].room.held_bytes <= len(json.dumps(body)))
        over.set()
        error = (await asking).stream_error
        assert error is not None
        assert "other open requests are kept already" in error["message"]


async def test_a_stream_that_begins_with_reasoning_keeps_no_prompt(nothing_is_kept: list[Resumes]) -> None:
    over = asyncio.Event()
    async with engines("ab", hedge={"share": 0}) as it, it.gw.connect() as client:
        it.then([head(200, "sse"), role(), delta({"reasoning_content": "hm"}), gate(over), eof()])
        await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await client.read_until(b"hm")
        assert nothing_is_kept[0].room.held_bytes == 0
        over.set()
        assert b"not resumed: reasoning had begun" in await client.read_until(b"not resumed")


# --- a trial, and an attempt after a failure


async def until_on_trial(gw: RunningGateway) -> None:
    await becomes(gw, "ejected", meanwhile=lambda: gw.post(r0()))
    await becomes(gw, "half_open")


async def test_a_stream_that_tries_an_endpoint_is_not_answered_by_another_before_it_is_decided() -> None:
    a: list[Script] = [chat_stream()]
    health = {"interval": "20ms", "timeout": "20s", "eject": "300ms", "eject_max": "1h"}
    options = {"hedge": {"share": 0.5, "at_least": "10ms"}, "health": health, "timeouts": {"first_token": "1s"}}
    async with (
        ScriptedUpstream(lambda _: a[0]) as one,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(config(one.url, other.url, pool_options=options)) as gw,
    ):
        for _ in range(5 * SAMPLES):
            assert (await gw.post(r0())).done
        a[0] = [rst()]
        await until_on_trial(gw)
        a[0] = [hang()]
        hedged = await gw.total("weir_hedges_total")
        await becomes(gw, "ejected", meanwhile=lambda: answered_by_other(gw))
        assert await gw.total("weir_hedges_total") == hedged
        assert await gw.total("weir_endpoint_transitions_total", endpoint="m-0", to="ejected") == 2


async def answered_by_other(gw: RunningGateway) -> None:
    assert (await gw.post(r0())).content() == "other"


async def test_a_whole_answer_that_never_comes_decides_the_trial() -> None:
    a: list[Script] = [[rst()]]
    health = {"interval": "20ms", "timeout": "20s", "eject": "300ms", "eject_max": "1h"}
    async with (
        ScriptedUpstream(lambda _: a[0]) as one,
        ScriptedUpstream(chat_stream("other")) as other,
        running_gateway(
            config(one.url, other.url, pool_options={"health": health, "timeouts": {"total": "500ms"}})
        ) as gw,
    ):
        await until_on_trial(gw)
        a[0] = [hang()]
        await becomes(gw, "ejected", meanwhile=lambda: gw.post(r0(stream=False)))
        assert await gw.total("weir_endpoint_transitions_total", endpoint="m-0", to="ejected") == 2


async def test_the_wait_before_a_further_attempt_is_none_of_it(flights: Flights) -> None:
    async with (
        ScriptedUpstream(FAILED) as a,
        ScriptedUpstream(chat_stream()) as b,
        running_gateway(config(a.url, b.url, pool_options={"health": {"failures": 1000, "interval": "1h"}})) as gw,
    ):
        for _ in range(2):
            await gw.post(r0())
        await gw.at_rest()
        first, second = next(record.attempts for record in flights.closed if len(record.attempts) == 2)
        assert first.ended_s is not None
        assert second.chosen_s >= first.ended_s + 0.025
