"""Four timers and what counts for each: only output is progress, and a slow client is not the engine's silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.fakes.engines import ENGINES
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    comment,
    completion,
    done,
    end,
    fin,
    flood,
    gate,
    hang,
    head,
    pause,
    raw,
    role,
    to_json,
    tok,
)
from tests.fakes.slow_client import connect_slow

CHAT = "/v1/chat/completions"
LONG = "1h"


def timeouts(**limits: str) -> dict[str, object]:
    """Every timer far away but the given ones."""
    return {"timeouts": {name: limits.get(name, LONG) for name in ("head", "first_token", "stall", "total")}}


def noise(piece: Step, count: int = 200) -> list[Step]:
    """Something that is no output, every 10 ms."""
    return [step for _ in range(count) for step in (piece, pause(0.01))]


SILENCES: dict[str, tuple[str, Sequence[Step]]] = {
    "no head": ("head", [hang()]),
    "no head, judged by the first token": ("first_token", [hang()]),
    "a head alone": ("first_token", [head(200, "sse"), hang()]),
    "a role alone": ("first_token", [head(200, "sse"), role(), hang()]),
    "comments": ("first_token", [head(200, "sse"), *noise(comment())]),
    "roles": ("first_token", [head(200, "sse"), *noise(role())]),
    "empty content": ("first_token", [head(200, "sse"), *noise(tok(""))]),
}


@pytest.mark.parametrize("silence", SILENCES)
async def test_what_is_no_output_stops_no_timer_before_the_first_token(silence: str) -> None:
    timer, script = SILENCES[silence]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config({"url": u.url, "id": "slow"}, pool_options=timeouts(**{timer: "60ms"}))) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status == 504
        assert reply.error["code"] == "upstream_timeout"
        assert "slow" in reply.error["message"]
        request = await u.arrived()
        assert not request.finished.is_set()
        assert f"timeouts.{timer}" in reply.error["message"]
        metrics = await gw.outcome("timeout")
        assert metrics.total("weir_endpoint_errors_total", endpoint="slow", error_type="first_token_timeout") == 1
        await asyncio.wait_for(request.left.wait(), WAIT_S)


STALLS: dict[str, Sequence[Step]] = {
    "nothing": [hang()],
    "comments": noise(comment()),
    "roles": noise(role()),
    "empty content": noise(tok("")),
}


@pytest.mark.parametrize("stall", STALLS)
async def test_what_is_no_output_stops_no_stall(stall: str) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), *STALLS[stall]]) as u,
        running_gateway(config(u.url, pool_options=timeouts(stall="60ms"))) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert reply.stream_error is not None
        assert reply.stream_error["code"] == "upstream_timeout"
        assert "timeouts.stall" in reply.stream_error["message"]
        assert not reply.done
        assert not u.last.finished.is_set()
        assert await gw.total("weir_endpoint_errors_total", error_type="stall_timeout") == 1


async def test_a_whole_answer_that_is_put_together_from_a_stream_stalls_likewise() -> None:
    """llama.cpp is asked for a stream: there too a comment is no progress."""
    script = [head(200, "sse"), role(), tok("a"), *noise(comment())]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, engine="llamacpp", pool_options=timeouts(stall="60ms"))) as gw,
    ):
        reply = await gw.post(r0(stream=False))
        assert reply.status == 504
        assert "timeouts.stall" in reply.error["message"]
        assert not u.last.finished.is_set(), "the comments kept it waiting to their end"


async def test_a_whole_answer_whose_body_stands_still_stalls() -> None:
    data = to_json(completion())
    async with (
        ScriptedUpstream([head(200, "json", length=len(data)), raw(data[:10]), hang()]) as u,
        running_gateway(config(u.url, pool_options=timeouts(stall="60ms"))) as gw,
    ):
        reply = await gw.post(r0(stream=False))
        assert reply.status == 504
        assert "timeouts.stall" in reply.error["message"]


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "llamacpp"])
async def test_a_whole_answer_is_not_cut_by_the_timers_of_a_stream(engine: str) -> None:
    """It has no first token to wait for: it may take all of its time before the head, and after it."""
    data = to_json(completion())
    script = [pause(0.2), head(200, "json", length=len(data)), pause(0.2), raw(data), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, engine=engine, pool_options=timeouts(head="50ms", first_token="50ms"))) as gw,
    ):
        assert (await gw.post(r0(stream=False))).status == 200


TOTALS: dict[str, tuple[bool, Script]] = {
    "before the head": (True, [hang()]),
    "before the first token": (True, [head(200, "sse"), *noise(comment())]),
    "in a stream that flows": (True, [head(200, "sse"), *noise(tok("a"))]),
    "in a whole answer": (False, [hang()]),
    "in the body of a whole answer": (False, [head(200, "json"), *noise(raw(b" "))]),
}


@pytest.mark.parametrize("where", TOTALS)
async def test_the_total_runs_out_wherever_the_request_is(where: str) -> None:
    stream, script = TOTALS[where]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, pool_options=timeouts(total="80ms"))) as gw,
    ):
        reply = await gw.post(r0(stream=stream))
        error = reply.stream_error if reply.status == 200 else reply.error
        assert error is not None
        assert error["code"] == "upstream_timeout"
        assert "timeouts.total" in error["message"]
        await gw.outcome("timeout")
        assert await gw.total("weir_endpoint_healthy") == 1


async def test_the_total_counts_from_the_first_attempt_on() -> None:
    """However many attempts a request makes, together they have one total."""
    options: dict[str, object] = {**timeouts(head="60ms", total="90ms"), "retries": {"attempts": 10}}
    async with ScriptedUpstream([hang()]) as u:
        endpoints = [{"url": u.url, "id": f"e{i}"} for i in range(8)]
        async with running_gateway(config(*endpoints, pool_options=options)) as gw:
            reply = await gw.post(r0())
            assert reply.status == 504
            assert int(reply.header("x-weir-attempts") or 0) < 8


async def test_a_stream_that_flows_may_last_longer_than_every_timer_but_the_total() -> None:
    script = [head(200, "sse"), role(), *(step for _ in range(12) for step in (tok("a"), pause(0.2)))]
    async with (
        ScriptedUpstream([*script, fin("stop"), done(), end()]) as u,
        running_gateway(config(u.url, pool_options=timeouts(head="2s", first_token="2s", stall="2s"))) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "a" * 12
        assert reply.done


async def test_a_client_that_takes_nothing_is_no_stall_of_the_engine() -> None:
    piece = "x" * 65_536
    script = [head(200, "sse"), role(), flood(lambda _: tok(piece)), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, pool_options=timeouts(stall="2s"), stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        await asyncio.sleep(2.2)  # the stimulus: longer than the stall, and two ticks
        reply = await client.rest()
        assert reply.done
        assert reply.content() == piece * request.flooded
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_client_write_wait_seconds_sum") > 2.1
        assert metrics.total("weir_longest_token_gap_seconds_sum") < 2.1, "the wait was the client's"


async def test_after_such_a_client_goes_on_a_stall_counts_again() -> None:
    piece, opened = "x" * 65_536, asyncio.Event()
    script = [head(200, "sse"), role(), flood(lambda _: tok(piece)), gate(opened), hang()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, pool_options=timeouts(stall="2s"), stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        reply = await client.rest()
        assert reply.content() == piece * request.flooded
        assert reply.stream_error is not None
        assert "timeouts.stall" in reply.stream_error["message"]


async def test_a_passed_on_stream_may_flow_for_longer_than_a_first_token_may_take() -> None:
    """``stream: true`` on a path that Weir does not decode, ``/v1/responses`` for one."""
    pieces = [step for n in range(12) for step in (raw(b"data: %d\n\n" % n), pause(0.2))]
    async with (
        ScriptedUpstream([head(200, "sse"), *pieces, end()]) as u,
        running_gateway(config(u.url, pool_options=timeouts(head="2s", first_token="2s", stall="2s"))) as gw,
    ):
        reply = await gw.post({"model": "m", "input": "hi", "stream": True}, "/v1/responses")
        assert reply.whole
        assert reply.payloads == [str(n) for n in range(12)]
        await gw.outcome("ok")


async def test_a_passed_on_stream_that_stands_still_is_cut() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), raw(b"data: 0\n\n"), hang()]) as u,
        running_gateway(config(u.url, pool_options=timeouts(stall="60ms"))) as gw,
    ):
        reply = await gw.post({"model": "m", "input": "hi", "stream": True}, "/v1/responses")
        assert not reply.whole
        await gw.outcome("timeout")


async def test_the_timers_leave_quick_streams_alone() -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url, pool_options=timeouts(head="20s", first_token="20s", stall="20s"))) as gw,
    ):
        assert (await gw.post(r0())).done
