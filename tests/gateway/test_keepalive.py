"""Keep-alive comments: they commit a 200, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.flights import watched_flights
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    comment,
    done,
    end,
    eof,
    event,
    fin,
    gate,
    hang,
    head,
    in_turn,
    json_answer,
    pause,
    role,
    rst,
    tok,
    unused_port,
)

CHAT = "/v1/chat/completions"
SOON = {"keepalive": "30ms"}
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}


async def test_after_a_comment_a_failure_is_an_error_event_of_a_200(monkeypatch: pytest.MonkeyPatch) -> None:
    flights, opened = watched_flights(monkeypatch), asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *json_answer(FAILED, 500)]) as u,
        running_gateway(config(u.url, stream=SOON)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        reply = await client.reply()
        assert reply.status == 200
        assert reply.stream_error is not None
        assert reply.stream_error["message"] == "engine trouble"
        assert reply.whole
        assert not reply.done
        record = await flights.ended()
        assert (record.outcome, record.error_type) == ("upstream_error", "500")


async def test_the_access_line_tells_the_status_that_the_comment_committed() -> None:
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *json_answer(FAILED, 500)]) as u,
        running_gateway(config(u.url, stream=SOON)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        await client.reply()
        (line,) = await gw.logs.access(1)
        assert (line["status"], line["outcome"]) == (200, "upstream_error")


ENDINGS: dict[str, Script] = {
    "500": json_answer(FAILED, 500),
    "reset after the role": [head(200, "sse"), role(), rst()],
    "error event": [head(200, "sse"), event(FAILED), eof()],
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_after_a_comment_and_before_output_another_endpoint_may_still_answer(ending: str) -> None:
    opened = asyncio.Event()
    answers = in_turn([gate(opened), *ENDINGS[ending]], chat_stream("Hello"))
    async with (
        ScriptedUpstream(answers) as a,
        ScriptedUpstream(answers) as b,
        running_gateway(config(a.url, b.url, stream=SOON)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        reply = await client.reply()
        assert reply.status == 200
        assert reply.content() == "Hello"
        assert reply.stream_error is None
        assert reply.done
        assert b" attempts=2 " in reply.body
        assert len(a.requests) == len(b.requests) == 1


async def test_a_comment_stops_no_timer() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), hang()]) as u,
        running_gateway(config(u.url, stream=SOON, pool_options={"timeouts": {"first_token": "1s"}})) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status == 200
        assert b": keep-alive" in reply.body
        assert reply.stream_error is not None
        assert "timeouts.first_token" in reply.stream_error["message"]


async def test_a_comment_is_no_token() -> None:
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *chat_stream("ab")]) as u,
        running_gateway(config(u.url, stream=SOON)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(lambda data: data.count(b": keep-alive\n\n") >= 2)
        opened.set()
        reply = await client.reply()
        assert reply.content() == "ab"
        (line,) = await gw.logs.access(1)
        assert line["chunks"] == 2
        assert line["ttft_s"] > 0.06, "two periods had passed before the first token"


async def test_silence_between_tokens_is_filled_too() -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, stream=SOON)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        reply = await client.reply()
        assert reply.content() == "ab"
        assert reply.done


async def test_a_stream_that_speaks_gets_none() -> None:
    tokens = [step for _ in range(12) for step in (tok("a"), pause(0.2))]
    async with (
        ScriptedUpstream([head(200, "sse"), *tokens, fin("stop"), done(), end()]) as u,
        running_gateway(config(u.url, stream={"keepalive": "2s"})) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.done
        assert b": keep-alive" not in reply.body


async def test_the_engines_own_comments_are_not_what_the_client_waits_for() -> None:
    noise = [step for _ in range(30) for step in (comment("busy"), pause(0.01))]
    async with (
        ScriptedUpstream([head(200, "sse"), *noise, *chat_stream("a")[1:]]) as u,
        running_gateway(config(u.url, stream=SOON)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert b": keep-alive" in reply.body


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/rerank"])
async def test_what_is_no_stream_gets_none(path: str) -> None:
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *json_answer(FAILED, 400)]) as u,
        running_gateway(config(u.url, stream=SOON)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", path, r0(stream=False)))
        await u.arrived()
        await asyncio.sleep(0.12)  # several periods: the stimulus
        assert client.received == b""
        opened.set()
        assert (await client.reply()).status == 400


async def test_no_endpoint_left_after_a_comment_is_an_error_event() -> None:
    opened = asyncio.Event()
    async with ScriptedUpstream([gate(opened), rst()]) as u:
        endpoints = [u.url, f"http://127.0.0.1:{unused_port()}"]
        async with running_gateway(config(*endpoints, stream=SOON)) as gw, gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            await client.read_until(b": keep-alive\n\n")
            opened.set()
            reply = await client.reply()
            assert reply.stream_error is not None
            assert reply.stream_error["code"] == "upstream_failed"
            assert not reply.done
