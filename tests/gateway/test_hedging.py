"""A second attempt beside a late first one: one answer, the other ended at once, and never more than were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from policies import hedging
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    completion,
    eof,
    eventually,
    gate,
    hang,
    head,
    in_turn,
    json_answer,
    role,
    tok,
)

HEDGE: dict[str, Any] = {"share": 0.5, "at_least": "10ms"}
STEADY: dict[str, Any] = {"failures": 1000, "interval": "1h"}
SAMPLES = 8
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}


@pytest.fixture(autouse=True)
def quick_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedging, "SAMPLES_NEEDED", SAMPLES)


class Pair:
    """Two endpoints, a gateway that has learnt how fast they are, and which of them was asked in which order."""

    def __init__(self, gw: RunningGateway, a: ScriptedUpstream, b: ScriptedUpstream) -> None:
        self.gw = gw
        self._known = {"a": a, "b": b}
        self._before = {name: len(u.requests) for name, u in self._known.items()}

    def asked(self) -> list[str]:
        """Who was asked since it has learnt, the first one first."""
        new = [(r.arrived_s, name) for name, u in self._known.items() for r in u.requests[self._before[name] :]]
        return [name for _, name in sorted(new)]

    async def both_asked(self) -> tuple[ScriptedUpstream, ScriptedUpstream]:
        await eventually(lambda: len(self.asked()) == 2)
        first, second = self.asked()
        return self._known[first], self._known[second]

    async def record(self, reply: Reply) -> dict[str, Any]:
        told = await self.gw.get(f"/weir/requests/{reply.header('x-request-id')}")
        record: dict[str, Any] = told.json()
        return record


@asynccontextmanager
async def pair(
    *then: Script,
    stream: bool = True,
    engine: str = "vllm",
    hedge: dict[str, Any] | None = None,
    usual: Sequence[Step] | None = None,
    **options: Any,
) -> AsyncGenerator[Pair]:
    """Both endpoints share their scripts: those that teach, and then these, whoever is asked."""
    quick = usual or (chat_stream() if stream or engine == "llamacpp" else json_answer(completion()))
    answers = in_turn(*[quick] * SAMPLES, *then)
    async with ScriptedUpstream(answers) as a, ScriptedUpstream(answers) as b:
        endpoints = [{"id": "a", "url": a.url}, {"id": "b", "url": b.url}]
        pool = {"hedge": HEDGE | (hedge or {}), "health": STEADY, **options}
        async with running_gateway(config(*endpoints, engine=engine, pool_options=pool)) as gw:
            for _ in range(SAMPLES):
                assert (await gw.post(r0(stream=stream))).status == 200
            yield Pair(gw, a, b)


@pytest.mark.parametrize(
    ("stream", "engine"), [(True, "vllm"), (True, "llamacpp"), (False, "vllm"), (False, "llamacpp")]
)
async def test_the_second_attempt_answers_when_the_first_says_nothing(stream: bool, engine: str) -> None:
    streamed = stream or engine == "llamacpp"
    answer = chat_stream("xy") if streamed else json_answer(completion("xy"))
    silent: Script = [head(200, "sse"), role(), hang()] if streamed else [hang()]
    async with pair(silent, answer, stream=stream, engine=engine) as p:
        reply = await p.gw.post(r0(stream=stream))
        assert reply.status == 200
        assert reply.content() == "xy" if stream else reply.json()["choices"][0]["message"]["content"] == "xy"
        first, second = p.asked()
        assert first != second
        assert reply.header("x-weir-endpoint") == second
        assert reply.header("x-weir-attempts") == "2"
        silent_one, _ = await p.both_asked()
        await silent_one.last.left.wait()
        metrics = await p.gw.at_rest()
        assert metrics.values("weir_hedges_total", pool="m", result="won") == [1]
        assert metrics.total("weir_hedges_total") == 1
        assert metrics.total("weir_retries_total") == 0
        assert metrics.total("weir_endpoint_errors_total") == 0
        assert metrics.total("weir_endpoint_attempts_total", role="hedge", endpoint=second, outcome="ok") == 1
        assert metrics.total("weir_endpoint_attempts_total", role="primary", endpoint=first, outcome="cancelled") == 1
        if stream:
            count = metrics.total("weir_endpoint_time_to_first_token_seconds_count", role="primary")
            assert count == SAMPLES
        assert metrics.total("weir_tokens_total", type="output", source="usage") == 2 * (SAMPLES + 1)


async def test_the_record_tells_both_attempts_and_what_the_wait_was() -> None:
    async with pair([hang()], chat_stream()) as p:
        told = await p.record(await p.gw.post(r0()))
        first, second = p.asked()
        assert [(a["endpoint"], a["role"], a["lost"], a["outcome"]) for a in told["attempts"]] == [
            (first, "primary", True, "cancelled"),
            (second, "hedge", False, "ok"),
        ]
        assert told["endpoint"] == second
        phases = {phase["name"]: phase["duration_s"] for phase in told["phases"]}
        assert "retries" not in phases
        assert phases["hedge_wait"] > 0
        assert sum(phases.values()) == pytest.approx(told["duration_s"])
        assert told["slowest_phase"] == "hedge_wait"
        assert f"for {first} until {second} was asked beside it (hedging)" in told["verdict"]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_first_attempt_answers_when_it_is_the_first_after_all(stream: bool) -> None:
    go_on = asyncio.Event()
    answer = chat_stream("xy") if stream else json_answer(completion("xy"))
    late: Script = [gate(go_on), *answer]
    async with pair(late, [hang()], stream=stream) as p:
        asking = asyncio.ensure_future(p.gw.post(r0(stream=stream)))
        first, second = await p.both_asked()
        go_on.set()
        reply = await asking
        assert reply.content() == "xy" if stream else reply.json()["choices"][0]["message"]["content"] == "xy"
        assert reply.header("x-weir-endpoint") == p.asked()[0]
        assert reply.header("x-weir-attempts") == "2"
        await second.last.left.wait()
        assert not first.failures
        metrics = await p.gw.at_rest()
        assert metrics.values("weir_hedges_total", result="lost") == [1]
        assert metrics.total("weir_endpoint_attempts_total", role="hedge", outcome="cancelled") == 1
        assert metrics.total("weir_tokens_total", type="output", source="usage") == 2 * (SAMPLES + 1)
        told = await p.record(reply)
        assert [(a["role"], a["lost"]) for a in told["attempts"]] == [("primary", False), ("hedge", True)]
        assert "hedge_wait" not in {phase["name"] for phase in told["phases"]}
        assert told["endpoint"] == p.asked()[0]


@pytest.mark.parametrize("stream", [True, False])
async def test_two_answers_at_the_same_time_are_one(stream: bool) -> None:
    """Each attempt's engine writes in the same turn of the loop; the client reads one whole answer, and it is whole."""
    rounds = 4
    gates = [asyncio.Event() for _ in range(rounds)]
    whole = [chat_stream("xy") if stream else json_answer(completion("xy"))] * 2
    scripts = [[gate(opened), *answer] for opened in gates for answer in whole]
    async with pair(*scripts, stream=stream) as p:
        for number, opened in enumerate(gates, 1):
            asking = asyncio.ensure_future(p.gw.post(r0(stream=stream)))
            await eventually(lambda: len(p.asked()) == 2 * number)  # noqa: B023 - awaited in this round
            opened.set()
            reply = await asking
            assert reply.status == 200
            if stream:
                assert reply.content() == "xy"
                assert reply.done
                assert len(reply.finishes()) == 1
            else:
                assert reply.json()["choices"][0]["message"]["content"] == "xy"
        metrics = await p.gw.at_rest()
        assert metrics.total("weir_hedges_total") == rounds
        assert metrics.total("weir_requests_total", outcome="ok") == SAMPLES + rounds
        assert metrics.total("weir_endpoint_attempts_total", outcome="ok") == SAMPLES + rounds


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_both(stream: bool) -> None:
    async with pair([hang()], stream=stream) as p, p.gw.connect() as client:
        await client.send(request_bytes("POST", "/v1/chat/completions", r0(stream=stream)))
        first, second = await p.both_asked()
        client.reset()
        await first.last.left.wait()
        await second.last.left.wait()
        await p.gw.outcome("cancelled")
        metrics = await p.gw.at_rest()
        assert metrics.total("weir_endpoint_attempts_total", outcome="cancelled") == 2
        assert metrics.total("weir_endpoint_errors_total") == 0


async def test_a_client_that_leaves_the_second_answer_ends_it() -> None:
    async with pair([hang()], [head(200, "sse"), tok("x"), hang()]) as p, p.gw.connect() as client:
        await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
        first, second = await p.both_asked()
        await client.read_until(b'"x"')
        await first.last.left.wait()
        assert not second.last.left.is_set()
        client.reset()
        await second.last.left.wait()
        await p.gw.outcome("cancelled")


async def test_when_the_first_fails_meanwhile_the_second_is_waited_for() -> None:
    fail, answer = asyncio.Event(), asyncio.Event()
    async with pair([gate(fail), *json_answer(FAILED, 500)], [gate(answer), *chat_stream("xy")]) as p:
        asking = asyncio.ensure_future(p.gw.post(r0()))
        await p.both_asked()
        fail.set()
        await p.gw.settled(lambda m: m.total("weir_endpoint_errors_total", error_type="500") == 1)
        answer.set()
        reply = await asking
        assert reply.content() == "xy"
        metrics = await p.gw.at_rest()
        assert metrics.total("weir_retries_total") == 0
        assert metrics.values("weir_hedges_total", result="won") == [1]


async def test_a_second_attempt_that_fails_leaves_the_first_alone() -> None:
    answer = asyncio.Event()
    async with pair([gate(answer), *chat_stream("xy")], json_answer(FAILED, 500)) as p:
        asking = asyncio.ensure_future(p.gw.post(r0()))
        await p.gw.settled(lambda m: m.total("weir_endpoint_errors_total", error_type="500") == 1)
        answer.set()
        reply = await asking
        assert reply.content() == "xy"
        assert reply.header("x-weir-endpoint") == p.asked()[0]
        assert await p.gw.total("weir_hedges_total", result="lost") == 1


async def test_when_both_fail_the_client_is_told() -> None:
    fail = asyncio.Event()
    async with pair([gate(fail), *json_answer(FAILED, 500)]) as p:
        asking = asyncio.ensure_future(p.gw.post(r0()))
        await p.both_asked()
        fail.set()
        reply = await asking
        assert reply.status == 500
        assert reply.header("x-weir-attempts") == "2"
        assert len(p.asked()) == 2


async def test_a_mistake_of_the_clients_is_told_at_once() -> None:
    refuse = asyncio.Event()
    async with pair([gate(refuse), *json_answer(FAILED, 400)], [hang()]) as p:
        asking = asyncio.ensure_future(p.gw.post(r0()))
        _, second = await p.both_asked()
        refuse.set()
        assert (await asking).status == 400
        await second.last.left.wait()


async def test_a_winner_that_breaks_is_a_broken_stream_and_no_further_attempt() -> None:
    async with pair([hang()], [head(200, "sse"), tok("x"), eof()]) as p:
        reply = await p.gw.post(r0())
        assert reply.content() == "x"
        assert not reply.done
        assert reply.stream_error is not None
        assert len(p.asked()) == 2


@pytest.mark.parametrize(
    ("hedge", "reason"), [({"share": 0}, None), ({"share": 0.001}, "budget"), ({"at_least": "1h"}, None)]
)
async def test_no_second_attempt_without_leave(hedge: dict[str, Any], reason: str | None) -> None:
    answer = asyncio.Event()
    async with pair([gate(answer), *chat_stream("xy")], hedge=hedge) as p:
        asking = asyncio.ensure_future(p.gw.post(r0()))
        if reason is not None:
            await p.gw.settled(lambda m: m.total("weir_hedges_withheld_total", reason=reason) == 1)
        else:
            await eventually(lambda: len(p.asked()) == 1)
        answer.set()
        assert (await asking).header("x-weir-attempts") == "1"
        assert await p.gw.total("weir_hedges_total") == 0


async def test_a_second_attempt_goes_where_all_the_others_went_since() -> None:
    """The endpoint of the late ones is spared by the policy: the other one has more to do for it, and room."""
    answer = asyncio.Event()
    async with pair([gate(answer), *chat_stream("xy")], hedge={"at_least": "200ms"}) as p:
        asking = [asyncio.ensure_future(p.gw.post(r0())) for _ in range(3)]
        await eventually(lambda: len(p.asked()) == 6)
        answer.set()
        assert [(await reply).content() for reply in asking] == ["xy"] * 3
        assert await p.gw.total("weir_hedges_withheld_total") == 0


async def test_no_second_attempt_where_no_other_endpoint_takes_any() -> None:
    answer = asyncio.Event()
    async with pair([gate(answer), *chat_stream("xy")], hedge={"at_least": "200ms"}) as p:
        asking = asyncio.ensure_future(p.gw.post(r0()))
        await eventually(lambda: len(p.asked()) == 1)
        await p.gw.post({}, f"/weir/endpoints/{'b' if p.asked() == ['a'] else 'a'}/drain")
        await p.gw.settled(lambda m: m.total("weir_hedges_withheld_total", reason="busy") == 1)
        answer.set()
        assert (await asking).header("x-weir-attempts") == "1"
