"""RW-22 and RW-23, transport: no slot leaks, no default kills a slow answer, nothing is held back."""

from __future__ import annotations

import asyncio
import random

import openai
import pytest

from tests.fakes.engines import ENGINES, WHOLE_ANSWER_ENGINES, spread
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes, t0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    comment,
    completion,
    done,
    end,
    eof,
    eventually,
    fin,
    flood,
    gate,
    hang,
    head,
    json_answer,
    pause,
    raw,
    role,
    rst,
    text,
    to_json,
    tok,
    wire,
)

CHAT = "/v1/chat/completions"


async def leave_after(gateway: RunningGateway, body: object, delay_s: float) -> None:
    """One request whose client leaves after that time: the delay is the stimulus."""
    async with gateway.connect() as connection:
        await connection.send(request_bytes("POST", CHAT, body))
        await asyncio.sleep(delay_s)
        connection.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_rw_22_bursts_of_leaving_clients_cost_no_connection_slot(stream: bool) -> None:
    slow: Script = [pause(0.01), *chat_stream("ab")]
    slow_whole: Script = [pause(0.01), *json_answer(completion("ab"))]
    chance = random.Random(22)
    async with (
        ScriptedUpstream(lambda r: slow if r.asked_for_stream else slow_whole) as u,
        running_gateway(config(u.url)) as gw,
    ):
        for _ in range(12):
            async with asyncio.TaskGroup() as group:
                for _ in range(24):
                    group.create_task(leave_after(gw, r0(stream=stream), chance.uniform(0.0005, 0.03)))
        await gw.at_rest()
        replies = await asyncio.gather(*(gw.post(r0(stream=stream)) for _ in range(12)))
        assert [reply.status for reply in replies] == [200] * 12
        if stream:
            assert [reply.content() for reply in replies] == ["ab"] * 12
        metrics = await gw.at_rest()
        assert metrics.total("weir_requests_total", outcome="upstream_error") == 0
        assert metrics.total("weir_requests_total", outcome="internal_error") == 0
        assert u.open_connections <= 24
        assert metrics.total("weir_endpoint_healthy") == 1


async def test_rw_22_failed_requests_leave_no_connection_behind() -> None:
    def broken(request: Request) -> Script:
        return [head(200, "sse"), role(), tok("a"), hang()]

    options = {"timeouts": {"stall": "50ms"}}
    async with ScriptedUpstream(broken) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        replies = await asyncio.gather(*(gw.post(r0()) for _ in range(12)))
        assert all(reply.stream_error for reply in replies)
        await gw.at_rest()
        await eventually(lambda: not u.open_connections)


@pytest.mark.parametrize("engine", WHOLE_ANSWER_ENGINES)
async def test_rw_22_connections_are_used_again(engine: str) -> None:
    async with (
        ScriptedUpstream(lambda r: chat_stream("ab") if r.asked_for_stream else json_answer(completion("ab"))) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
    ):
        for i in range(10):
            assert (await gw.post(r0(stream=i % 2 == 0))).status == 200
        assert sum(request.turn == 1 for request in u.requests) <= 2, "probes have connections of their own"


async def test_rw_22_an_engine_that_closes_after_each_answer_is_dialled_anew() -> None:
    body = to_json(completion("ab"))
    script = [head(200, "json", length=len(body)), raw(body), eof()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        for _ in range(10):
            assert (await gw.post(r0(stream=False))).status == 200
        metrics = await gw.outcome("ok", 10)
        assert metrics.total("weir_endpoint_healthy") == 1
        assert len(u.requests) == 10


@pytest.mark.parametrize("ending", [eof(), rst()], ids=["close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
async def test_rw_22_a_kept_connection_that_closes_under_a_request_is_replaced_silently(
    ending: Step, stream: bool
) -> None:
    """As at an engine's idle limit: the request is on its way when the close comes."""

    def only_once(request: Request) -> Script:
        if request.turn > 1:
            return [ending]
        return chat_stream("ab") if request.asked_for_stream else json_answer(completion("ab"))

    async with ScriptedUpstream(only_once) as u, running_gateway(config(u.url)) as gw:
        for _ in range(6):
            reply = await gw.post(r0(stream=stream))
            assert reply.status == 200
            assert reply.header("x-weir-attempts") == "1"
        metrics = await gw.outcome("ok", 6)
        assert metrics.total("weir_endpoint_healthy") == 1
        assert metrics.total("weir_retries_total") == 0


SLOW_LIMITS = {"timeouts": {"connect": "20s", "head": "20s", "first_token": "20s", "stall": "20s"}}


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_23_a_slow_engine_within_its_limits_is_waited_for(engine: str) -> None:
    tokens = [step for token in "abcdef" for step in (pause(0.05), tok(token))]
    script = [pause(0.2), head(200, "sse"), role(), pause(0.2), *tokens, fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, engine=engine, pool_options=SLOW_LIMITS)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "abcdef"
        assert reply.done
        assert len(u.requests) == 1


async def test_rw_23_a_stream_may_last_many_times_its_stall_limit() -> None:
    options = {"timeouts": {"head": "2s", "first_token": "2s", "stall": "2s"}}
    tokens = [step for token in "abcdefghijkl" for step in (pause(0.5), tok(token))]
    script = [head(200, "sse"), role(), *tokens, fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == "abcdefghijkl"
        assert reply.done


def limits(**given: str) -> dict[str, dict[str, str]]:
    """Limits of which only the given ones can be reached in a test."""
    return {"timeouts": {"head": "20s", "first_token": "20s", "stall": "20s", "total": "60s", **given}}


COMMENTS: list[Step] = [step for _ in range(200) for step in (pause(0.05), comment("keep-alive"))]
BEFORE_OUTPUT: dict[str, tuple[dict[str, dict[str, str]], list[Step]]] = {
    "no head": (limits(head="200ms"), [hang()]),
    "no head, first token": (limits(first_token="200ms"), [hang()]),
    "head alone": (limits(first_token="200ms"), [head(200, "sse"), hang()]),
    "role alone": (limits(first_token="200ms"), [head(200, "sse"), role(), hang()]),
    "comments without end": (limits(first_token="300ms"), [head(200, "sse"), *COMMENTS, hang()]),
    "roles without end": (limits(first_token="300ms"), [head(200, "sse"), *([pause(0.05), role()] * 200), hang()]),
    "total": (limits(total="200ms"), [head(200, "sse"), hang()]),
}


@pytest.mark.parametrize("wait", BEFORE_OUTPUT)
async def test_rw_23_a_limit_that_runs_out_before_any_output_is_a_504(wait: str) -> None:
    options, script = BEFORE_OUTPUT[wait]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        reply = await gw.post(r0())
        assert reply.status == 504
        assert reply.header("content-type") == "application/json"
        assert reply.error["message"]
        assert reply.error["weir"]["endpoint"]
        request = await u.arrived()
        await asyncio.wait_for(request.left.wait(), WAIT_S)
        await gw.outcome("timeout")
        await gw.at_rest()


async def test_rw_23_a_whole_answer_that_does_not_come_in_all_its_time_is_a_504() -> None:
    async with (
        ScriptedUpstream([hang()]) as u,
        running_gateway(config(u.url, pool_options=limits(total="300ms"))) as gw,
    ):
        reply = await gw.post(r0(stream=False))
        assert reply.status == 504
        request = await u.arrived()
        await asyncio.wait_for(request.left.wait(), WAIT_S)
        await gw.outcome("timeout")


@pytest.mark.parametrize("engine", WHOLE_ANSWER_ENGINES)
async def test_rw_23_a_whole_answer_may_take_longer_than_a_first_token(engine: str) -> None:
    """Its head comes when the last token is there, so no limit for the first one may end it."""
    options = {"timeouts": {"head": "100ms", "first_token": "100ms", "stall": "100ms"}}
    data = to_json(completion("ab"))
    # In one write, so that nothing can stall between the head and the body
    answer = wire(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
    async with (
        ScriptedUpstream([pause(0.4), answer]) as u,
        running_gateway(config(u.url, engine=engine, pool_options=options)) as gw,
    ):
        assert (await gw.post(r0(stream=False))).status == 200
        assert len(u.requests) == 1


AFTER_OUTPUT: dict[str, tuple[dict[str, dict[str, str]], list[Step]]] = {
    "silence": (limits(stall="200ms"), [hang()]),
    "comments without end": (limits(stall="300ms"), [*COMMENTS, hang()]),
    "total": (limits(total="2s"), [step for _ in range(200) for step in (pause(0.05), tok("b"))]),
}


@pytest.mark.parametrize(("wait", "engine"), spread(AFTER_OUTPUT))
async def test_rw_23_a_limit_that_runs_out_after_output_is_an_error_event(engine: str, wait: str) -> None:
    options, rest = AFTER_OUTPUT[wait]
    script = [head(200, "sse"), role(), tok("a"), *rest]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine, pool_options=options)) as gw:
        reply = await gw.post(r0())
        assert reply.status == 200
        assert reply.content().rstrip("b") == "a"
        assert reply.stream_error is not None
        assert not reply.done
        assert reply.finishes() == []
        await asyncio.wait_for(u.last.left.wait(), WAIT_S)
        await gw.outcome("timeout")
        with pytest.raises(openai.APIError):
            async for _ in await gw.sdk().chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            ):
                pass


async def test_rw_23_a_limit_that_runs_out_during_keep_alives_is_an_error_event() -> None:
    """The keep-alive has committed a 200, so the error can only come as an event."""
    text_of = config("http://placeholder", pool_options=limits(first_token="1s"), stream={"keepalive": "100ms"})
    async with (
        ScriptedUpstream([head(200, "sse"), hang()]) as u,
        running_gateway(text_of.replace("http://placeholder", u.url)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status == 200
        assert sum(bool(block.comments) for block in reply.blocks) >= 1
        assert reply.stream_error is not None
        assert not reply.done
        await gw.outcome("timeout")


async def test_rw_23_a_limit_that_runs_out_before_any_output_sends_the_request_elsewhere() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), hang()]) as slow,
        ScriptedUpstream(chat_stream("ab")) as good,
        running_gateway(config(slow.url, good.url, pool_options=limits(first_token="2s"))) as gw,
    ):
        for _ in range(2):  # one of them begins at the slow one
            reply = await gw.post(r0())
            assert reply.content() == "ab"
            assert reply.done
        assert slow.requests
        await asyncio.wait_for(slow.requests[0].left.wait(), WAIT_S)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("operation", ["chat", "completions"])
async def test_rw_23_each_write_of_the_engine_goes_on_at_once(engine: str, operation: str) -> None:
    """The engine writes its next token only when the client has the previous one."""
    make, path, body = (tok, CHAT, r0()) if operation == "chat" else (text, "/v1/completions", t0())
    opened = [asyncio.Event() for _ in range(6)]
    tokens = [step for i, event in enumerate(opened) for step in (gate(event), make(f"<{i}>"))]
    last = fin("stop") if operation == "chat" else text("", finish="stop")
    script = [head(200, "sse"), *([role()] if operation == "chat" else []), *tokens, last, done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", path, body))
        for i, event in enumerate(opened):
            event.set()
            await connection.read_until(f"<{i}>".encode())
        assert (await connection.reply()).done


async def test_rw_23_two_hundred_streams_at_once_are_all_whole() -> None:
    script = [head(200, "sse"), role(), *[s for c in "abcd" for s in (pause(0.02), tok(c))], fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        replies = await asyncio.gather(*(gw.post(r0()) for _ in range(200)))
        assert {reply.content() for reply in replies} == {"abcd"}
        assert all(reply.done for reply in replies)
        await gw.outcome("ok", 200)


@pytest.mark.parametrize("form", ["chunks", "close-delimited"])
async def test_rw_23_a_frame_larger_than_any_block_is_passed_whole(form: str) -> None:
    long = "x" * 300_000
    body = [role(), tok(long), fin("stop"), done()]
    script = [head(200, "sse", chunked=form == "chunks"), *body, end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == long
        assert reply.done


async def test_rw_23_a_client_that_stalls_and_goes_on_loses_nothing() -> None:
    def part(number: int) -> str:
        return f"{number:06d}" + "x" * 60_000

    script = [head(200, "sse"), role(), flood(lambda number: tok(part(number))), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        assert not request.finished.is_set()
        reply = await connection.reply()
        assert reply.content() == "".join(map(part, range(request.flooded)))
        assert reply.done
