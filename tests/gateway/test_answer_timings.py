"""What an answer tells of its own times: a header, a comment before the end, a trailer where it is taken."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    gate,
    in_turn,
    json_answer,
    pause,
    rst,
    text_stream,
)

CHAT = "/v1/chat/completions"
TIMINGS = re.compile(r"queue;dur=([\d.]+), route;dur=([\d.]+), connect;dur=([\d.]+), (ttft|total);dur=([\d.]+)")
TRAILER = re.compile(TIMINGS.pattern.replace("(ttft|total)", "(ttft)") + r", total;dur=([\d.]+)")
COMMENT = re.compile(
    rb"^: weir endpoint=(\S+) attempts=(\d+) ttft_ms=([\d.]+) longest_gap_ms=([\d.]+) total_ms=([\d.]+) chunks=(\d+)$",
    re.MULTILINE,
)


@pytest.mark.parametrize(
    ("stream", "script", "last"), [(True, chat_stream(), "ttft"), (False, json_answer(completion()), "total")]
)
async def test_the_header_tells_where_the_time_went(stream: bool, script: Script, last: str) -> None:
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream))
        found = TIMINGS.fullmatch(reply.header("server-timing") or "")
        assert found is not None
        assert found[4] == last
        queue_ms, route_ms, connect_ms, whole_ms = (float(found[i]) for i in (1, 2, 3, 5))
        assert queue_ms + route_ms + connect_ms <= whole_ms + 0.01
        assert whole_ms < 60_000


@pytest.mark.parametrize(("path", "script"), [(CHAT, chat_stream("abc")), ("/v1/completions", text_stream("abc"))])
@pytest.mark.parametrize("asked", [True, False])
async def test_the_comment_is_the_last_thing_before_the_end(path: str, script: Script, asked: bool) -> None:
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config({"url": u.url, "id": "here/1"})) as gw,
    ):
        reply = await gw.post(r0(prompt="hi", stream_options={"include_usage": asked}), path)
        before, end = reply.body.split(b": weir ")
        assert end.partition(b"\n\n")[2] == b"data: [DONE]\n\n"
        assert before.endswith(b"\n\n")
        (found,) = COMMENT.findall(reply.body)
        endpoint, attempts, ttft_ms, gap_ms, total_ms, chunks = found
        assert (endpoint, attempts, chunks) == (b"here/1", b"1", b"3")
        assert float(ttft_ms) + float(gap_ms) <= float(total_ms) + 0.1
        assert (reply.chunks[-1].get("usage") is not None) == asked


async def test_a_broken_stream_has_no_timing_comment() -> None:
    async with ScriptedUpstream([*chat_stream("ab")[:3], rst()]) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.stream_error is not None
        assert b": weir " not in reply.body


@pytest.mark.parametrize("te", ["trailers", "gzip, Trailers"])
async def test_a_client_that_takes_trailers_gets_the_timings_there_too(te: str) -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0(), [("te", te)]))
        await client.read_until(lambda data: data.endswith(b"\r\n\r\n") and b"\r\n0\r\n" in data)
        head, _, rest = client.received.partition(b"\r\n\r\n")
        assert b"trailer: server-timing" in head
        trailer = rest[rest.rindex(b"\r\n0\r\n") + 5 :]
        found = TRAILER.fullmatch(trailer.decode().removeprefix("server-timing: ").removesuffix("\r\n\r\n"))
        assert found is not None
        (comment,) = COMMENT.findall(rest)
        assert [float(found[i]) for i in (5, 6)] == pytest.approx([float(comment[i]) for i in (2, 4)], abs=0.5)
        await client.send(request_bytes("GET", "/healthz"))
        await client.read_until(b'{"status":"ok"}')


async def test_what_came_before_the_attempt_that_answers_is_a_time_of_its_own() -> None:
    """Else it would be lost, or seem to be the choice of an endpoint."""
    failed = [pause(0.1), *json_answer({"error": {"message": "no", "code": 500}}, 500)]
    answers = in_turn(failed, json_answer(completion()))
    async with (
        ScriptedUpstream(answers) as a,
        ScriptedUpstream(answers) as b,
        running_gateway(config(a.url, b.url)) as gw,
    ):
        reply = await gw.post(r0(stream=False))
        assert reply.header("x-weir-attempts") == "2"
        times = dict(part.split(";dur=") for part in (reply.header("server-timing") or "").split(", "))
        assert list(times) == ["queue", "route", "retries", "connect", "total"]
        assert float(times["retries"]) >= 100
        assert float(times["route"]) < 100
        assert sum(map(float, times.values())) <= 2 * float(times["total"]) + 0.01


async def test_other_clients_get_no_trailer() -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.header("trailer") is None
        assert reply.raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_a_trailer_that_is_announced_comes_and_one_that_comes_was_announced() -> None:
    """A keep-alive may have sent the head before."""
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *chat_stream()]) as u,
        running_gateway(config(u.url, stream={"keepalive": "30ms"})) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0(), [("te", "trailers")]))
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        await client.read_until(lambda data: data.endswith(b"\r\n\r\n") and b"\r\n0\r\n" in data)
        announced = b"trailer: server-timing" in client.received.partition(b"\r\n\r\n")[0]
        assert announced == (b"\r\n0\r\nserver-timing: " in client.received)


# --- HTTP/1.0


def http_1_0(data: bytes) -> bytes:
    return data.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)


@pytest.mark.parametrize("headers", [[], [("connection", "keep-alive")], [("te", "trailers")]])
async def test_an_http_1_0_client_gets_its_stream_until_the_connection_ends(headers: list[tuple[str, str]]) -> None:
    async with (
        ScriptedUpstream(chat_stream("abc")) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(http_1_0(request_bytes("POST", CHAT, r0(), headers)))
        reply = await client.reply()
        assert client.ended
        assert reply.header("transfer-encoding") is None
        assert reply.header("trailer") is None
        assert reply.content() == "abc"
        assert reply.body.endswith(b"data: [DONE]\n\n")


async def test_an_http_1_0_client_gets_a_whole_answer_with_its_length() -> None:
    async with (
        ScriptedUpstream(json_answer(completion())) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(http_1_0(request_bytes("POST", CHAT, r0(stream=False))))
        reply = await client.reply()
        assert reply.json()["choices"][0]["message"]["content"] == "ab"
        assert reply.header("content-length") == str(len(reply.body))


async def test_a_stream_that_breaks_reaches_an_http_1_0_client_as_an_error_event() -> None:
    async with (
        ScriptedUpstream([*chat_stream("ab")[:3], rst()]) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(http_1_0(request_bytes("POST", CHAT, r0())))
        reply = await client.reply()
        assert reply.stream_error is not None
        assert not reply.done
