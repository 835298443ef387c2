"""Odd requests: each gets an answer in words, and none is a fault of Weir's."""

from __future__ import annotations

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, completion, json_answer

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("broken", [b"\\q", b"\xff", b"\n", b"\\ud800"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_a_large_body_that_is_broken_deep_inside_is_no_500(broken: bytes, engine: str) -> None:
    """Whether it is seen here or left to the engine."""
    text = b"x" * 200_000 + broken + b"x" * 200_000
    body = b'{"model":"m","stream":true,"stream_options":{},"user":null,"messages":[{"role":"user","content":"%b"}]}'
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(body % text)
        assert reply.status in (200, 400)
        assert "fault of Weir" not in gw.logs.text


@pytest.mark.parametrize("path", ["/v1/\xff\xfe", "/\xe9", "/v1/chat/\xff", "/v1/models/\xff"])
async def test_a_path_that_is_not_ascii_is_a_4xx(path: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.raw(request_bytes("GET", path))
        assert 400 <= reply.status < 500
        assert reply.error["message"]
        assert "Traceback" not in gw.logs.text


@pytest.mark.parametrize("method", ["HEAD", "TRACE", "OPTIONS", "PROPFIND", "M-SEARCH"])
@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
async def test_a_method_that_is_not_served_is_a_405(method: str, path: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.raw(request_bytes(method, path))
        assert reply.status == 405
        assert reply.header("allow")


@pytest.mark.parametrize("method", ["GETX", "foo", "get"])
async def test_a_method_that_nobody_knows_is_a_4xx(method: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.raw(request_bytes(method, CHAT))
        assert 400 <= reply.status < 500
        assert reply.error["message"]


async def test_the_whole_url_may_stand_on_the_request_line() -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(), f"http://weir.test{CHAT}")).done
        assert u.last.target == CHAT


async def test_a_query_on_a_generating_path_is_left_out() -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(), f"{CHAT}?api-version=1")).done
        assert u.last.target == CHAT


@pytest.mark.parametrize("value", ["yes", "1", "0", '"true"', "[]", "{}"])
async def test_a_stream_field_that_is_no_boolean_is_told(value: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.post(b'{"model":"m","messages":[],"stream":%b}' % value.encode())
        assert (reply.status, reply.error["code"]) in {(400, "invalid_json"), (400, "invalid_request")}


async def test_a_stream_of_null_is_none() -> None:
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(stream=None))).json()["object"] == "chat.completion"


async def test_a_body_without_a_length_on_a_post_is_told() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.raw(request_bytes("POST", CHAT))
        assert (reply.status, reply.error["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000])
async def test_a_body_nested_without_end_is_told(deep: bytes) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        for path in (CHAT, "/v1/rerank"):
            reply = await gw.post(b'{"model":"m","messages":[],"x":' + deep, path)
            assert 400 <= reply.status < 503
            assert reply.error["code"] != "internal_error"


async def test_a_body_nested_deeply_and_well_is_no_500() -> None:
    nested = b'{"model":"m","stream":false,"user":null,"messages":[],"x":' + b"[" * 900 + b"]" * 900 + b"}"
    for engine in ("vllm", "sglang"):
        async with (
            ScriptedUpstream(json_answer(completion())) as u,
            running_gateway(config(u.url, engine=engine)) as gw,
        ):
            reply = await gw.post(nested)
            assert reply.status in (200, 400)
