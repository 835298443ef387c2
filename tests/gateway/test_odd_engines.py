"""What an odd or broken engine says reaches nobody as a fault of Weir's."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.fakes.flights import watched_flights
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import (
    VLLM,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    eof,
    event,
    eventually,
    head,
    json_answer,
    role,
    to_json,
    wire,
)


@pytest.mark.parametrize("status", [600, 777, 999])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/rerank"])
async def test_a_status_that_http_does_not_know_is_a_502(
    status: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = watched_flights(monkeypatch)
    script = [wire(b"HTTP/1.1 %d Odd\r\ncontent-length: 2\r\n\r\n{}" % status)]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False), path)
        assert reply.status == 502
        assert reply.error["code"] == "upstream_failed"
        assert (await flights.ended()).outcome == "upstream_error"


@pytest.mark.parametrize("status", [300, 304, 307])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/rerank"])
async def test_a_status_that_is_no_answer_is_a_502(status: int, path: str) -> None:
    script = [wire(b"HTTP/1.1 %d Odd\r\ncontent-length: 0\r\n\r\n" % status)]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False), path)
        assert (reply.status, reply.error["code"]) == (502, "upstream_failed")


@pytest.mark.parametrize("code", [0, -1, 99, 200, 302, 999, 10**30, "999", "", None, [], {}, 4.5])
@pytest.mark.parametrize("stream", [True, False])
async def test_any_code_in_an_error_of_a_200_gives_an_error_status(code: object, stream: bool) -> None:
    failed = {"error": {"message": "odd", "code": code}}
    script: Script = [head(200, "sse"), event(failed), done(), end()] if stream else json_answer(failed)
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream))
        assert 400 <= reply.status < 600
        assert reply.error["message"] == "odd"


@pytest.mark.parametrize("message", ["\ud800", "a\x00b", 'say "x"\r\nheader: y', "é😀", "\u2028", "x" * 100_000])
async def test_any_message_of_an_engine_can_be_told(message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": message, "code": message, "param": message}}).encode()
    async with ScriptedUpstream(json_answer(body, 400)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.status == 400
        assert reply.error["message"]


@pytest.mark.parametrize("message", ["\ud800", "a\x00b", "x" * 100_000])
async def test_an_endpoint_ejected_with_any_words_can_be_listed(message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    async with ScriptedUpstream(json_answer(body, 500)) as a, ScriptedUpstream(chat_stream()) as b:
        options = {"health": {"failures": 1, "interval": "1h"}}
        async with running_gateway(config(a.url, b.url, pool_options=options)) as gw:
            for _ in range(2):
                assert (await gw.post(r0())).status == 200
            listed = await gw.get("/weir/endpoints")
            assert listed.status == 200
            assert [e["health"] for e in listed.json()] == ["ejected", "healthy"]
            assert len(listed.body) < 20_000
            assert (await gw.get("/metrics")).status == 200


@pytest.mark.parametrize("version", ["\ud800", 'a"b\\c', "a\nb", "x" * 10_000, 7, None])
async def test_an_engine_may_call_its_version_what_it_likes(version: object) -> None:
    plain = {**VLLM, "/version": json_answer(json.dumps({"version": version}).encode())}
    async with (
        ScriptedUpstream(chat_stream(), plain=plain) as u,
        running_gateway(config({"url": u.url, "engine": "auto"})) as gw,
    ):
        await eventually(lambda: any(probe.target == "/version" and probe.finished.is_set() for probe in u.probes))
        for _ in range(5):  # whenever the answer is read
            await asyncio.sleep(0)
            assert (await gw.get("/weir/endpoints")).status == 200
            assert (await gw.get("/metrics")).status == 200


@pytest.mark.parametrize(
    "models",
    [b"[]", b"null", b'{"data": null}', b'{"data": [null]}', b'{"data": [{"owned_by": 7}]}', b"nonsense", b"", b"\xff"],
)
async def test_an_engine_that_lists_nonsense_is_still_probed_and_served(models: bytes) -> None:
    plain = {"/v1/models": json_answer(models)}
    async with (
        ScriptedUpstream(chat_stream(), plain=plain) as u,
        running_gateway(config({"url": u.url, "engine": "auto"}, pool_options={"health": {"interval": "10ms"}})) as gw,
    ):
        assert (await gw.post(r0())).done
        await eventually(lambda: len(u.probes) > 6)


async def test_an_error_in_the_stream_with_odd_text_reaches_the_client_as_one_event() -> None:
    failed = b'{"error": {"message": "a\\nb\\u2028\\ud800", "code": 500}}'
    script = [*chat_stream("a")[:3], event(failed), eof()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert reply.stream_error is not None
        assert reply.whole


async def test_the_same_answer_is_taken_whatever_the_case_of_its_headers() -> None:
    data = to_json(completion())
    raw_answer = b"HTTP/1.1 200 OK\r\nCONTENT-TYPE: Application/JSON\r\nContent-LENGTH: %d\r\n\r\n%b" % (
        len(data),
        data,
    )
    async with ScriptedUpstream([wire(raw_answer)]) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(stream=False))).status == 200


async def test_a_stream_without_a_content_type_is_a_stream() -> None:
    script = [head(200, ""), role(), *chat_stream("ab")[2:]]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == "ab"
        assert reply.done
