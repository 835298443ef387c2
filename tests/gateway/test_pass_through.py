"""Other ``/v1`` paths: the engine's own bytes, by pool."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.fakes.flights import watched_flights
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    end,
    eof,
    gate,
    head,
    json_answer,
    raw,
    rst,
    wire,
)

ANSWER: object = {"results": [{"index": 0, "relevance_score": 0.5}], "model": "engine-model"}
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}


def two_pools(a: str, b: str) -> str:
    pools = {
        name: {"endpoints": [{"url": url, "engine": "vllm", "model": f"engine-{name}"}]}
        for name, url in (("a", a), ("b", b))
    }
    return json.dumps({"pools": pools}, indent=1)


async def test_a_get_is_passed_with_its_query() -> None:
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.get("/v1/files?limit=2&after=a%20b")
        assert reply.status == 200
        assert reply.json() == ANSWER
        assert u.last.line == b"GET /v1/files?limit=2&after=a%20b HTTP/1.1"
        assert u.last.body == b""
        assert reply.header("x-weir-endpoint") == "m-0"
        assert reply.header("x-weir-attempts") == "1"
        assert reply.header("x-request-id") is not None
        assert u.last.header("x-request-id") == (reply.header("x-request-id") or "").encode()


@pytest.mark.parametrize(
    ("sent", "engine"),
    [
        ("/v1/files/a%20b", b"/v1/files/a%20b"),
        ("/v1/files/a%2Fb", b"/v1/files/a%2Fb"),
        ("/v1/files/a%3Fb", b"/v1/files/a%3Fb"),
        ("/v1/files/a%23b", b"/v1/files/a%23b"),
        ("/v1/files/%E6%BC%A2", b"/v1/files/%E6%BC%A2"),
        ("/v1/files/100%25", b"/v1/files/100%25"),
        ("/v1//files/a%20b/", b"/v1/files/a%20b"),
        ("/v1/files/a%0D%0Ax-injected:%20yes", b"/v1/files/a%0D%0Ax-injected:%20yes"),
    ],
)
async def test_what_is_escaped_in_a_path_stays_escaped(sent: str, engine: bytes) -> None:
    """Undone, it would end the request line early, and let a client write headers of its own to the engine."""
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        await gw.get(sent)
        assert len(u.requests) == 1
        assert u.last.line == b"GET " + engine + b" HTTP/1.1"
        assert u.last.header("x-injected") is None


async def test_no_path_smuggles_a_second_request_to_the_engine() -> None:
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        await gw.get("/v1/x%20HTTP/1.1%0D%0Ahost:%20e%0D%0A%0D%0AGET%20/v1/smuggled")
        await gw.get("/v1/after")
        assert all(request.target != "/v1/smuggled" for request in u.requests)
        assert len(u.requests) <= 2


async def test_a_post_is_passed_with_the_engines_name_of_the_model() -> None:
    async with (
        ScriptedUpstream(json_answer(ANSWER)) as u,
        running_gateway(two_pools("http://127.0.0.1:9", u.url)) as gw,
    ):
        reply = await gw.post({"model": "b", "query": "q", "documents": ["x"], "top_n": None}, "/v1/rerank")
        assert reply.json() == ANSWER
        assert u.last.json() == {"model": "engine-b", "query": "q", "documents": ["x"], "top_n": None}
        assert u.last.header("content-type") == b"application/json"


async def test_a_form_is_passed_byte_for_byte_to_the_pool_it_names() -> None:
    form = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n'
        b'\x00\xff"model"\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nb\r\n--x--\r\n'
    )
    async with (
        ScriptedUpstream(json_answer({"text": "hello"})) as u,
        running_gateway(two_pools("http://127.0.0.1:9", u.url)) as gw,
    ):
        kind = ("content-type", "multipart/form-data; boundary=x")
        reply = await gw.post(form, "/v1/audio/transcriptions", [kind])
        assert reply.json() == {"text": "hello"}
        assert u.last.body == form
        assert u.last.header("content-type") == kind[1].encode()


FORMS: dict[str, bytes] = {
    "a file of that name": b'name="file"; filename="model"\r\ncontent-type: audio/wav\r\n\r\nnot a model',
    "a file that speaks of it": b'name="file"; filename="a"\r\n\r\nname="model"\r\n\r\nnot a model',
    "a field whose name ends so": b'name="base-model"\r\n\r\nnot a model',
}


@pytest.mark.parametrize("other", FORMS)
async def test_only_the_field_of_that_name_names_the_model(other: str) -> None:
    parts = (FORMS[other], b'name="model"\r\n\r\nb')
    form = b"".join(b"--x\r\ncontent-disposition: form-data; " + part + b"\r\n" for part in parts) + b"--x--\r\n"
    async with (
        ScriptedUpstream(json_answer(ANSWER)) as u,
        running_gateway(two_pools("http://127.0.0.1:9", u.url)) as gw,
    ):
        kind = ("content-type", "multipart/form-data; boundary=x")
        assert (await gw.post(form, "/v1/audio/transcriptions", [kind])).status == 200


@pytest.mark.parametrize("where", ["query", "body"])
async def test_the_pool_is_found_by_the_model_wherever_it_is_named(where: str) -> None:
    async with (
        ScriptedUpstream(json_answer(ANSWER)) as u,
        running_gateway(two_pools("http://127.0.0.1:9", u.url)) as gw,
    ):
        if where == "query":
            reply = await gw.get("/v1/files?model=b")
        else:
            reply = await gw.post({"model": "b"}, "/v1/tokenize")
        assert reply.status == 200
        assert len(u.requests) == 1


async def test_several_pools_and_no_model_is_a_404_that_says_what_to_do() -> None:
    async with running_gateway(two_pools("http://127.0.0.1:9", "http://127.0.0.1:9")) as gw:
        for reply in (await gw.get("/v1/files"), await gw.post(b"not json", "/v1/files")):
            assert reply.status == 404
            assert "model" in reply.error["message"]
        unknown = await gw.post({"model": "c"}, "/v1/rerank")
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")


async def test_an_event_stream_is_passed_piece_by_piece() -> None:
    opened = asyncio.Event()
    script: list[Step] = [head(200, "sse"), raw(b"event: a\ndata: 1\n\n"), gate(opened), raw(b"data: 2\n\n"), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", "/v1/responses", {"model": "m", "stream": True}))
        await client.read_until(b"data: 1\n\n")
        opened.set()
        reply = await client.reply()
        assert reply.body == b"event: a\ndata: 1\n\ndata: 2\n\n"
        assert reply.header("x-accel-buffering") == "no"
        assert reply.header("cache-control") == "no-cache"
        assert reply.header("content-type") == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500, 503])
async def test_an_engines_error_becomes_openais_shape(status: int) -> None:
    async with (
        ScriptedUpstream(json_answer({"detail": "no such file"}, status)) as u,
        running_gateway(config(u.url)) as gw,
    ):
        reply = await gw.get("/v1/files/x")
        assert reply.status == status
        assert reply.error["message"] == "no such file"


async def test_before_the_head_another_endpoint_may_answer() -> None:
    async with (
        ScriptedUpstream([rst()]) as a,
        ScriptedUpstream(json_answer(ANSWER)) as b,
        running_gateway(config(a.url, b.url)) as gw,
    ):
        replies = [await gw.post({"model": "m"}, "/v1/rerank") for _ in range(2)]
        assert [reply.json() for reply in replies] == [ANSWER] * 2
        assert {reply.header("x-weir-endpoint") for reply in replies} == {"m-1"}


@pytest.mark.parametrize("ending", [eof(), rst()])
@pytest.mark.parametrize("kind", ["json", "sse"])
async def test_a_body_that_breaks_off_is_cut_off_and_never_looks_whole(
    ending: Step, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = watched_flights(monkeypatch)
    start = head(200, "sse") if kind == "sse" else head(200, "json")
    async with (
        ScriptedUpstream([start, raw(b'{"half":'), ending]) as a,
        ScriptedUpstream(json_answer(ANSWER)) as b,
        running_gateway(config(a.url, b.url)) as gw,
    ):
        reply = await gw.post({"model": "m"}, "/v1/rerank")
        if not a.requests:  # the turn was b's
            reply = await gw.post({"model": "m"}, "/v1/rerank")
        assert reply.status == 200
        assert not reply.whole
        await flights.ended(len(a.requests) + len(b.requests))
        assert flights.closed[-1].outcome == "upstream_error"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_each_method_is_passed(method: str) -> None:
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        body = None if method in ("GET", "DELETE") else {"model": "m"}
        reply = await gw.raw(request_bytes(method, "/v1/things/1", body))
        assert reply.status == 200
        assert u.last.method == method


@pytest.mark.parametrize(
    "script",
    [[wire(b"HTTP/1.1 204 No Content\r\n\r\n"), end()], [wire(b"HTTP/1.1 204 N\r\ncontent-length: 0\r\n\r\n")]],
)
async def test_an_answer_that_has_no_body_gets_none(script: Script) -> None:
    """Body bytes after a 204 would be taken for the beginning of the next answer."""
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("DELETE", "/v1/files/x"))
        await client.read_until(b"\r\n\r\n")
        await u.arrived()
        await client.send(request_bytes("GET", "/healthz"))
        await client.read_until(b'{"status":"ok"}')
        first, _, second = client.received.partition(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 204 ")
        assert b"transfer-encoding" not in first.lower()
        assert second.startswith(b"HTTP/1.1 200 ")


async def test_it_is_counted_as_other_with_its_path_in_the_access_line() -> None:
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        await gw.post({"model": "m"}, "/v1/rerank")
        (line,) = await gw.logs.access(1)
        assert (line["operation"], line["status"], line["outcome"]) == ("other", 200, "ok")
        assert line["bytes_out"] == len(json.dumps(ANSWER, separators=(",", ":")))
        assert await gw.total("weir_requests_total", operation="other", outcome="ok") == 1


async def test_the_engines_own_headers_stay_with_it_but_for_the_content_type() -> None:
    script = [
        head(200, "", ("content-type", "audio/wav"), ("set-cookie", "a=b"), ("server", "x"), length=2),
        raw(b"hi"),
    ]
    async with ScriptedUpstream([*script, end()]) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post({"model": "m", "input": "hi"}, "/v1/audio/speech")
        assert reply.body == b"hi"
        assert reply.header("content-type") == "audio/wav"
        assert reply.header("set-cookie") is None
        assert reply.header("server") is None
