"""Requests that did not go straight: the record, the access line and the headers name who took the time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from policies import hedging
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.resuming import broken_at_a, pool
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    end,
    gate,
    hang,
    head,
    in_turn,
    json_answer,
    pause,
    raw,
    role,
    to_json,
    tok,
)

CHAT = "/v1/chat/completions"
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}
LATE_S = 0.3


async def told(gw: RunningGateway, reply: Reply) -> dict[str, Any]:
    return await told_of(gw, reply.header("x-request-id") or "")


async def told_of(gw: RunningGateway, request_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await gw.get(f"/weir/requests/{request_id}")).json()
    assert sum(part["duration_s"] for part in answer["phases"]) == pytest.approx(answer["duration_s"])
    return answer


def phases(record: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["duration_s"] for part in record["phases"]}


# --- hedges of which nobody answers


def hedged(a: ScriptedUpstream, b: ScriptedUpstream, **options: Any) -> str:
    steady = {"failures": 1000, "interval": "1h"}
    pool_options = {"hedge": {"share": 0.5, "at_least": "10ms"}, "health": steady, **options}
    return config({"id": "a", "url": a.url}, {"id": "b", "url": b.url}, pool_options=pool_options)


@pytest.mark.parametrize(
    ("first", "outcome"),
    [
        ([pause(LATE_S), *json_answer({"error": {"message": "no", "code": 400}}, 400)], "client_error"),
        ([hang()], "timeout"),
    ],
)
async def test_of_two_that_fail_the_one_that_was_waited_for_is_told(
    first: Script, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hedging, "SAMPLES_NEEDED", 8)
    answers = in_turn(*[chat_stream()] * 8, first, json_answer(FAILED, 500))
    alone = {"retries": {"attempts": 2}, "timeouts": {"first_token": f"{LATE_S}s", "learn": False}}
    async with (
        ScriptedUpstream(answers) as a,
        ScriptedUpstream(answers) as b,
        running_gateway(hedged(a, b, **alone)) as gw,
    ):
        for _ in range(8):
            await gw.post(r0())
        reply = await gw.post(r0())
        record = await told(gw, reply)
        waited_for, quick = record["attempts"]
        assert (waited_for["outcome"], quick["outcome"], quick["role"]) == (outcome, "upstream_error", "hedge")
        assert record["outcome"] == outcome
        assert record["endpoint"] == waited_for["endpoint"]
        assert reply.header("x-weir-endpoint") == waited_for["endpoint"]
        assert reply.error["weir"]["endpoint"] == waited_for["endpoint"]
        assert phases(record).get("gateway", 0.0) < LATE_S / 2
        assert f" for {waited_for['endpoint']}, which does not say for what" in record["verdict"]


async def test_a_client_that_leaves_was_waiting_for_the_one_that_still_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedging, "SAMPLES_NEEDED", 8)
    answers = in_turn(*[chat_stream()] * 8, [hang()], json_answer(FAILED, 500))
    async with ScriptedUpstream(answers) as a, ScriptedUpstream(answers) as b, running_gateway(hedged(a, b)) as gw:
        for _ in range(8):
            await gw.post(r0())
        async with gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0(), [("x-request-id", "left")]))
            await gw.settled(lambda m: m.total("weir_endpoint_errors_total", error_type="500") == 1)
        await gw.outcome("cancelled", 1)
        record = await told_of(gw, "left")
        still_ran = record["attempts"][0]
        assert (still_ran["role"], still_ran["outcome"]) == ("primary", "cancelled")
        assert record["endpoint"] == still_ran["endpoint"]


# --- silences


async def test_a_silence_that_ends_a_stream_is_its_longest_gap() -> None:
    script = [head(200, "sse"), role(), *[tok("a")] * 5, hang()]
    frozen = config("http://unused", pool_options={"timeouts": {"stall": f"{LATE_S}s", "learn": False}})
    async with ScriptedUpstream(script) as u, running_gateway(frozen.replace("http://unused", u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.stream_error is not None
        record = await told(gw, reply)
        assert record["error_type"] == "stall_timeout"
        assert record["longest_gap_s"] >= LATE_S
        assert f"with a pause of {record['longest_gap_s'] * 1e3:.0f} ms" in record["verdict"]
        each = re.search(r"tokens, ([\d.]+) ms each", record["verdict"])
        assert each is not None
        assert float(each[1]) < LATE_S * 1e3 / 5


async def test_a_client_that_leaves_amid_a_silence_has_felt_it() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), tok("b"), hang()]) as u,
        running_gateway(config(u.url)) as gw,
    ):
        async with gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0(), [("x-request-id", "left")]))
            await client.read_until(b'"b"')
            await asyncio.sleep(LATE_S)  # the silence itself, at least as long
        await gw.outcome("cancelled", 1)
        assert (await told_of(gw, "left"))["longest_gap_s"] >= LATE_S
        assert await gw.total("weir_longest_token_gap_seconds_sum") >= LATE_S


async def test_an_endpoint_that_does_not_count_in_time_took_the_time_of_going_on() -> None:
    def counts_never(request: Request) -> Script:
        return [hang()] if request.target.startswith("/tokenize") else chat_stream()

    broken = [head(200, "sse"), role(), tok("ab"), tok("c"), end()]
    async with (
        ScriptedUpstream(broken) as a,
        ScriptedUpstream(counts_never) as b,
        running_gateway(pool(a.url, b.url, engine="vllm")) as gw,
    ):
        reply = await broken_at_a(gw, r0(max_tokens=50))
        record = await told(gw, reply)
        assert [(each["endpoint"], each["error_type"]) for each in record["attempts"]] == [
            ("a", "truncated_stream"),
            ("b", "not_counted"),
        ]
        assert record["slowest_phase"] == "resume"
        assert "going on at another endpoint took" in record["verdict"]


# --- connections


async def test_a_silent_retry_that_cannot_connect_is_told_as_connecting() -> None:
    """The engine closes a kept connection at the next request, and takes no other."""

    def whole(value: object) -> bytes:
        data = to_json(value)
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)

    closing: list[asyncio.AbstractServer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = 0
        try:
            while head_bytes := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head_bytes)
                await reader.readexactly(int(length[1]) if length else 0)
                if head_bytes.startswith(b"POST"):
                    asked += 1
                    if asked == 2:
                        closing[0].close()
                        return
                    writer.write(whole(completion()))
                else:
                    writer.write(whole({"object": "list", "data": []}))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    closing.append(server)
    port = server.sockets[0].getsockname()[1]
    alone = {"retries": {"attempts": 1}, "health": {"interval": "1h", "failures": 1000}}
    async with running_gateway(config(f"http://127.0.0.1:{port}", engine="openai", pool_options=alone)) as gw:
        assert (await gw.post(r0(stream=False))).status == 200
        reply = await gw.post(r0(stream=False))
        assert reply.status == 502
        record = await told(gw, reply)
        (attempt,) = record["attempts"]
        assert (attempt["error_type"], attempt["sent_at_s"], attempt["reused_connection"]) == ("connect", None, False)
        assert "engine_wait" not in phases(record)
        assert "connect" in phases(record)
    server.close()
    await server.wait_closed()


# --- what is passed on


async def test_a_stream_that_is_passed_on_is_no_wait_from_its_first_byte_on() -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), raw(b"data: {}\n\n"), gate(opened), raw(b"data: {}\n\n"), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", "/v1/responses", {"model": "m", "stream": True}))
        await client.read_until(b"data: {}\n\n")
        await asyncio.sleep(LATE_S)  # how long it streams, at least
        opened.set()
        reply = await client.reply()
        record = await told(gw, reply)
        assert phases(record)["decode"] >= LATE_S
        assert phases(record).get("prefill", 0.0) == 0.0
        (line,) = await gw.logs.access(1)
        assert line["bytes_out"] == len(reply.body)


@pytest.mark.parametrize("size_bytes", [0, 1, 5000, 3_000_000])
async def test_every_byte_that_is_passed_on_is_counted(size_bytes: int) -> None:
    body = b"x" * size_bytes
    script = [head(200, "", ("content-type", "audio/wav"), length=size_bytes), raw(body), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post({"model": "m"}, "/v1/audio/speech")
        assert reply.body == body
        (line,) = await gw.logs.access(1)
        assert line["bytes_out"] == size_bytes


# --- keep-alives


async def test_a_client_that_leaves_after_a_keep_alive_has_had_a_status() -> None:
    async with (
        ScriptedUpstream([hang()]) as u,
        running_gateway(config(u.url, stream={"keepalive": "20ms"})) as gw,
    ):
        async with gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            await client.read_until(b": keep-alive\n\n")
        (line,) = await gw.logs.access(1)
        assert (line["status"], line["outcome"]) == (200, "cancelled")


async def test_a_refusal_after_a_keep_alive_names_the_engines_status() -> None:
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *json_answer({"error": {"message": "no", "code": 422}}, 422)]) as u,
        running_gateway(config(u.url, stream={"keepalive": "20ms"})) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0(), [("x-request-id", "refused")]))
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        await client.reply()
        assert "with status 422, the request's own fault" in (await told_of(gw, "refused"))["verdict"]
