"""RW-14 and RW-15, headers: secrets stay on their side, and body and headers agree about coding."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from gateway.config.problems import ConfigError
from tests.fakes.engines import ENGINES
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.scripted import (
    Body,
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    completion,
    end,
    head,
    json_answer,
    raw,
    to_json,
)

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CLIENT_HEADERS = [
    ("Authorization", "Bearer CANARY1"),
    ("x-api-key", "CANARY2"),
    ("Cookie", "s=CANARY3"),
    ("Proxy-Authorization", "CANARY4"),
    ("api-key", "CANARY5"),
    ("Connection", "x-hop"),
    ("x-hop", "CANARY6"),
    ("Keep-Alive", "timeout=CANARY7"),
    ("TE", "trailers"),
    ("traceparent", TRACEPARENT),
    ("x-request-id", "r1"),
]
HOP_BY_HOP = {b"x-hop", b"keep-alive", b"te", b"upgrade", b"proxy-authorization", b"proxy-connection", b"trailer"}
OWN_KEY = "sk-OWN-KEY"


def passed(request_headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in request_headers}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/tokenize"], ids=["chat", "passed through"])
async def test_rw_14_nothing_of_the_callers_credentials_reaches_an_engine(engine: str, path: str) -> None:
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(stream=False), path, CLIENT_HEADERS)
        assert u.requests, reply.raw
        headers = passed(u.last.headers)
        assert b"CANARY" not in b"".join(headers.values())
        assert b"authorization" not in headers
        assert b"cookie" not in headers
        assert not HOP_BY_HOP & headers.keys()
        assert headers[b"host"] == f"127.0.0.1:{u.port}".encode()
        assert len(u.last.headers) == len(headers), "a header was sent twice"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stream", [True, False])
async def test_rw_14_an_engine_with_a_key_gets_its_own_and_no_other(engine: str, stream: bool) -> None:
    def answer(_: object) -> Script:
        return chat_stream("ab")

    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config({"url": u.url, "api_key": OWN_KEY}, engine=engine)) as gw,
    ):
        reply = await gw.post(r0(stream=stream), headers=CLIENT_HEADERS)
        assert u.last.header("authorization") == f"Bearer {OWN_KEY}".encode()
        assert OWN_KEY.encode() not in reply.raw
        assert b"CANARY" not in reply.raw


@pytest.mark.parametrize("key", ["", " "])
async def test_rw_14_an_empty_key_sends_no_authorization(key: str) -> None:
    try:
        text = config({"url": "http://127.0.0.1:1", "api_key": key})
        async with running_gateway(text):
            pass
    except ConfigError:
        return
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config({"url": u.url, "api_key": key})) as gw,
    ):
        await gw.post(r0(), headers=CLIENT_HEADERS)
        assert u.last.header("authorization") is None


async def test_rw_14_a_pool_may_choose_to_forward_the_callers_authorization() -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config(u.url, pool_options={"forward_authorization": True})) as gw,
    ):
        await gw.post(r0(), headers=[("Authorization", "Bearer mine"), ("x-api-key", "CANARY2")])
        assert u.last.header("authorization") == b"Bearer mine"
        assert u.last.header("x-api-key") is None


async def test_rw_14_configured_headers_are_sent_to_their_endpoint() -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config({"url": u.url, "headers": {"X-Team": "blue", "api-key": "k"}})) as gw,
    ):
        await gw.post(r0(), headers=[*CLIENT_HEADERS, ("x-team", "CANARY8")])
        assert u.last.header("x-team") == b"blue"
        assert u.last.header("api-key") == b"k"
        assert b"CANARY" not in b"".join(value for _, value in u.last.headers)


@pytest.mark.parametrize("stream", [True, False])
async def test_rw_14_request_id_and_trace_context_are_carried_on(stream: bool) -> None:
    answer = chat_stream("ab") if stream else json_answer(completion())
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream), headers=CLIENT_HEADERS)
        assert reply.header("x-request-id") == "r1"
        assert u.last.header("x-request-id") == b"r1"
        trace = u.last.header("traceparent") or b""
        assert trace == TRACEPARENT.encode()  # unchanged, for no span of Weir's would stand between: no traces are made


async def test_rw_14_without_an_id_each_request_gets_one_of_its_own() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        ids = [(await gw.post(r0())).header("x-request-id") for _ in range(3)]
        assert all(ids)
        assert len(set(ids)) == 3
        assert [r.header("x-request-id") for r in u.requests] == [i.encode() for i in ids if i]


async def test_rw_14_the_second_name_of_the_request_id_is_taken_too() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(), headers=[("X-Request-Trace-ID", "t-1")])
        assert reply.header("x-request-id") == "t-1"
        assert u.last.header("x-request-id") == b"t-1"


@pytest.mark.parametrize("bad", ["", " ", "a" * 5_000, 'a"b{c}', "a b", "a\x80b", "<script>"])
async def test_rw_14_an_id_that_is_not_sane_is_replaced(bad: str) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(), headers=[("x-request-id", bad)])
        assert reply.status == 200
        made = reply.header("x-request-id")
        assert made
        assert made != bad
        assert u.last.header("x-request-id") == made.encode()


@pytest.mark.parametrize("stream", [True, False])
async def test_rw_14_the_engines_private_headers_do_not_reach_the_client(stream: bool) -> None:
    private = [
        ("set-cookie", "engine=CANARY"),
        ("server", "CANARY"),
        ("www-authenticate", "Bearer CANARY"),
        ("connection", "x-hop"),
        ("x-hop", "CANARY"),
        ("keep-alive", "CANARY"),
        ("access-control-allow-origin", "CANARY"),
    ]
    steps = chat_stream("ab")
    answer: list[Step] = (
        [head(200, "sse", *private), *steps[1:]] if stream else json_answer(completion(), 200, *private)
    )
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream))
        assert reply.status == 200
        assert b"CANARY" not in reply.raw
        assert sum(name == "content-type" for name, _ in reply.headers) == 1
        assert sum(name == "date" for name, _ in reply.headers) <= 1


async def test_rw_14_stream_headers_tell_proxies_not_to_hold_bytes_back() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.header("x-accel-buffering") == "no"
        assert reply.header("cache-control") == "no-cache"
        assert reply.header("x-weir-endpoint")
        assert reply.header("x-weir-attempts") == "1"
        assert "ttft" in (reply.header("server-timing") or "")
        assert reply.header("content-length") is None


def gzip_each(steps: list[Step]) -> list[Step]:
    """Each event compressed and flushed alone, in one gzip stream."""
    squeeze = zlib.compressobj(wbits=31)
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Body):
            made.append(raw(squeeze.compress(step.data) + squeeze.flush(zlib.Z_SYNC_FLUSH)))
    return [*made, raw(squeeze.flush()), end()]


GZIP = ("content-encoding", "gzip")
ANSWER = to_json(completion("ab"))
TOO_LONG = to_json({"error": {"message": "ctx too long", "type": "BadRequestError", "param": None, "code": 400}})
CODED: dict[str, tuple[Script, bool]] = {
    "gzip stream": ([head(200, "sse", GZIP), *gzip_each(chat_stream("ab"))], True),
    "gzip answer": (json_answer(gzip.compress(ANSWER), 200, GZIP), False),
    "gzip answer, chunked": ([head(200, "json", GZIP), raw(gzip.compress(ANSWER)), end()], False),
    "gzip error": (json_answer(gzip.compress(TOO_LONG), 400, GZIP), False),
    "gzip error of a stream": (json_answer(gzip.compress(TOO_LONG), 400, GZIP), True),
    "zstd answer": (json_answer(b"\x28\xb5\x2f\xfd garbage", 200, ("content-encoding", "zstd")), False),
    "zstd stream": ([head(200, "sse", ("content-encoding", "zstd")), raw(b"\x28\xb5\x2f\xfd?"), end()], True),
    "br answer": (json_answer(b"\x0b\x02\x80garbage", 200, ("content-encoding", "br")), False),
    "a coding nobody knows": (json_answer(b"garbage", 200, ("content-encoding", "x-rot13")), False),
    "two codings": (json_answer(b"garbage", 200, ("content-encoding", "gzip, br")), False),
    "gzip that is not": (json_answer(ANSWER, 200, GZIP), False),
}
IDENTITY: dict[str, tuple[Script, bool]] = {
    "identity stream": ([head(200, "sse", ("content-encoding", "identity")), *chat_stream("ab")[1:]], True),
    "identity answer": (json_answer(ANSWER, 200, ("Content-Encoding", "Identity")), False),
}
OFFERED = [("Accept-Encoding", "gzip, br, zstd")]


def assert_readable(reply: Reply, right: Any) -> None:
    """The answer is right, or the engine's real error, or a 502; never bytes that the headers do not explain."""
    assert reply.header("content-encoding") in (None, "identity")
    if reply.status == 200:
        assert (reply.content() if isinstance(right, str) else reply.json()) == right
    elif reply.status == 400:
        assert "ctx too long" in reply.error["message"]
    else:
        assert reply.status == 502
        assert reply.error["message"]


@pytest.mark.parametrize("form", CODED)
async def test_rw_15_a_coded_body_is_decoded_or_refused_but_never_garbage(form: str) -> None:
    script, stream = CODED[form]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream), headers=OFFERED)
        assert_readable(reply, "ab" if stream else completion("ab") | {"model": "m"})
        if form.startswith(("zstd", "br", "a coding", "two", "gzip that")):
            assert reply.status == 502
        metrics = await gw.at_rest()
        if reply.status == 200:
            assert metrics.total("weir_tokens_total", type="output") == 2


@pytest.mark.parametrize("form", IDENTITY)
async def test_rw_15_identity_is_no_coding(form: str) -> None:
    script, stream = IDENTITY[form]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream), headers=OFFERED)
        assert reply.status == 200
        assert_readable(reply, "ab" if stream else completion("ab") | {"model": "m"})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "engine"), [*(("/v1/chat/completions", engine) for engine in ENGINES), ("/v1/tokenize", "vllm")]
)
async def test_rw_15_engines_are_asked_for_no_coding(engine: str, stream: bool, path: str) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url, engine=engine)) as gw:
        await gw.post(r0(stream=stream), path, headers=OFFERED)
        assert u.last.header("accept-encoding") in (None, b"identity")
