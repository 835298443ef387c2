"""RW-21, cancel: a client that leaves frees its engine at once, in every phase and on every route."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.engines import ENGINES, spread
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import RawConnection, r0, request_bytes, t0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    comment,
    eventually,
    hang,
    head,
    raw,
    role,
    silent_listener,
    tok,
)

WAITS: dict[str, list[Step]] = {
    "no head": [hang()],
    "head": [head(200, "sse"), hang()],
    "comment": [head(200, "sse"), comment(), hang()],
    "role": [head(200, "sse"), role(), hang()],
    "half an event": [head(200, "sse"), role(), raw(b'data: {"choices"'), hang()],
}
THREE_TOKENS: Script = [head(200, "sse"), role(), tok("a"), tok("b"), tok("c"), hang()]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat stream": ("/v1/chat/completions", r0()),
    "chat": ("/v1/chat/completions", r0(stream=False)),
    "completions stream": ("/v1/completions", t0()),
    "completions": ("/v1/completions", t0(stream=False)),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": "hi"}),
    "passed through": ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"]}),
}


def leave(connection: RawConnection, how: str) -> None:
    if how == "close":
        connection.close()
    else:
        connection.reset()


async def assert_cancelled(gateway: RunningGateway, request: Request, count: int = 1) -> None:
    """The engine's socket is closed, nothing stays in flight, and nobody is blamed."""
    await asyncio.wait_for(request.left.wait(), WAIT_S)
    assert not request.finished.is_set()
    metrics = await gateway.outcome("cancelled", count)
    assert metrics.total("weir_requests_total") == count
    await gateway.at_rest()
    healthy = metrics.values("weir_endpoint_healthy")
    assert all(value == 1 for value in healthy)
    assert metrics.total("weir_retries_total") == 0


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("call", CALLS)
async def test_rw_21_a_client_that_leaves_before_the_engine_answers_frees_it(call: str, how: str) -> None:
    path, body = CALLS[call]
    async with (
        ScriptedUpstream([hang()]) as u1,
        ScriptedUpstream([hang()]) as u2,
        running_gateway(config(u1.url, u2.url)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", path, body))
        await eventually(lambda: bool(u1.requests + u2.requests))
        leave(connection, how)
        [request] = u1.requests + u2.requests
        await assert_cancelled(gw, request)
        assert len(u1.requests + u2.requests) == 1, "a cancelled request was tried again"


@pytest.mark.parametrize(
    ("wait", "engine"), [*((wait, engine) for wait in ("no head", "role") for engine in ENGINES), *spread(WAITS)[1:]]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_rw_21_a_client_that_leaves_before_the_first_token_frees_the_engine(
    wait: str, engine: str, stream: bool
) -> None:
    async with (
        ScriptedUpstream(WAITS[wait]) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0(stream=stream)))
        request = await u.arrived()
        connection.close()
        await assert_cancelled(gw, request)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_21_a_client_that_leaves_after_three_tokens_frees_the_engine(engine: str, how: str) -> None:
    async with (
        ScriptedUpstream(THREE_TOKENS) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await connection.read_until(b'"content":"c"')
        leave(connection, how)
        await assert_cancelled(gw, u.last)


async def test_rw_21_a_client_that_leaves_amid_a_whole_answer_frees_the_engine() -> None:
    script = [head(200, "json"), raw(b'{"choices":['), hang()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0(stream=False)))
        request = await u.arrived()
        connection.close()
        await assert_cancelled(gw, request)


async def test_rw_21_a_client_that_leaves_during_keep_alives_frees_the_engine() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), hang()]) as u,
        running_gateway(config(u.url, stream={"keepalive": "100ms"})) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await connection.read_until(lambda got: got.count(b"\n:") >= 2)
        connection.close()
        await assert_cancelled(gw, u.last)


async def test_rw_21_a_client_that_leaves_while_its_body_comes_in_reaches_no_engine() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as connection:
            await connection.send(
                request_bytes("POST", "/v1/chat/completions", b'{"model"', [("content-length", "99")])
            )
            connection.close()
        assert (await gw.post(r0())).content() == "ab"
        assert len(u.requests) == 1
        await gw.at_rest()


async def test_rw_21_a_client_that_leaves_while_we_connect_is_not_served() -> None:
    options = {"timeouts": {"connect": "10s"}}
    with silent_listener() as port:
        async with (
            running_gateway(config(f"http://127.0.0.1:{port}", pool_options=options)) as gw,
            gw.connect() as connection,
        ):
            await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
            await gw.settled(lambda m: m.total("weir_endpoint_in_flight") == 1)
            connection.close()
            await gw.outcome("cancelled")
            await gw.at_rest()


async def test_rw_21_a_client_that_stops_reading_and_then_leaves_frees_the_engine() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), *[tok("x" * 60_000) for _ in range(200)], hang()]) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await connection.read_until(b'"content":"x')
        assert not u.last.left.is_set()
        connection.reset()
        await assert_cancelled(gw, u.last)


async def test_rw_21_the_official_clients_close_frees_the_engine() -> None:
    async with ScriptedUpstream(THREE_TOKENS) as u, running_gateway(config(u.url)) as gw:
        stream = await gw.sdk().chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async for piece in stream:
            if piece.choices[0].delta.content == "c":
                break
        await stream.close()
        await assert_cancelled(gw, u.last)


@pytest.mark.parametrize("stream", [True, False])
async def test_rw_21_a_cancelled_task_of_the_official_client_frees_the_engine(stream: bool) -> None:
    async with ScriptedUpstream([hang()]) as u, running_gateway(config(u.url)) as gw:
        call = gw.sdk().chat.completions.create
        task: asyncio.Task[Any] = asyncio.ensure_future(
            call(model="m", messages=[{"role": "user", "content": "hi"}], stream=stream)
        )
        request = await u.arrived()
        task.cancel()
        await assert_cancelled(gw, request)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_rw_21_a_client_that_leaves_after_the_answer_was_not_cancelled() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        for how in ("close", "reset"):
            async with gw.connect() as connection:
                await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
                assert (await connection.reply()).done
                leave(connection, how)
        metrics = await gw.outcome("ok", 2)
        assert metrics.total("weir_requests_total", outcome="cancelled") == 0
        assert len(u.requests) == 2


async def test_rw_21_a_cancelled_request_teaches_nobody_a_latency() -> None:
    async with (
        ScriptedUpstream(WAITS["role"]) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
        request = await u.arrived()
        connection.close()
        await assert_cancelled(gw, request)
        assert await gw.total("weir_time_to_first_token_seconds_count") == 0
