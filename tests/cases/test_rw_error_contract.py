"""RW-19 and RW-20, error-contract: the real status reaches the client, in a body that the official client shows."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

import adapters
from tests.fakes.engines import ENGINES, spread
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes, t0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    end,
    hang,
    head,
    json_answer,
    raw,
    silent_listener,
    unused_port,
)

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat stream": ("/v1/chat/completions", r0()),
    "chat": ("/v1/chat/completions", r0(stream=False)),
    "completions stream": ("/v1/completions", t0()),
    "completions": ("/v1/completions", t0(stream=False)),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": "hi"}),
}
SAID = "the engine's own words"
ENGINE_ERROR = {"error": {"message": SAID, "type": "BadRequestError", "param": "input_tokens", "code": 400}}


def assert_contract(reply: Reply, status: int) -> dict[str, Any]:
    """A JSON error in OpenAI's shape, with Weir's own part and no trace of the program in it."""
    assert reply.status == status, reply.raw
    assert reply.header("content-type") == "application/json"
    assert reply.whole
    assert reply.json().keys() == {"error"}
    error = reply.error
    assert error.keys() >= {"message", "type", "code", "param", "weir"}
    assert isinstance(error["message"], str)
    assert error["message"].strip()
    assert isinstance(error["type"], str)
    assert error["weir"].keys() >= {"stage", "endpoint", "retryable", "request_id"}
    assert error["weir"]["request_id"]
    assert error["weir"]["request_id"] == reply.header("x-request-id")
    assert isinstance(error["weir"]["retryable"], bool)
    for trace in ("Traceback", "  File ", ".py", " object at 0x"):
        assert trace not in reply.body.decode()
    return error


async def assert_sdk_shows(gateway: RunningGateway, message: str, status: int) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as raised:
        await gateway.sdk().chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
    assert message in str(raised.value)
    assert raised.value.status_code == status
    return raised.value


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_rw_19_the_clients_own_error_is_passed_on_and_never_retried(call: str, status: int) -> None:
    path, body = CALLS[call]
    async with (
        ScriptedUpstream(json_answer(ENGINE_ERROR, status)) as u1,
        ScriptedUpstream(json_answer(ENGINE_ERROR, status)) as u2,
        running_gateway(config(u1.url, u2.url)) as gw,
    ):
        error = assert_contract(await gw.post(body, path), status)
        assert SAID in error["message"]
        assert error["param"] == "input_tokens"
        assert error["weir"]["retryable"] is False
        assert error["weir"]["endpoint"]
        assert len(u1.requests) + len(u2.requests) == 1
        metrics = await gw.outcome("client_error")
        assert metrics.total("weir_endpoint_healthy") == 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stream", [True, False])
async def test_rw_19_a_busy_engines_429_and_its_retry_after_reach_the_client(engine: str, stream: bool) -> None:
    busy = json_answer({"error": {"message": SAID, "type": "rate", "code": 429}}, 429, ("Retry-After", "7"))
    async with ScriptedUpstream(busy) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(stream=stream))
        error = assert_contract(reply, 429)
        assert SAID in error["message"]
        assert reply.header("retry-after") == "7"
        assert error["weir"]["retryable"] is True
        metrics = await gw.at_rest()
        assert metrics.total("weir_endpoint_healthy") == 1, "busy is not dead"
        raised = await assert_sdk_shows(gw, SAID, 429)
        assert raised.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("call", CALLS)
async def test_rw_19_a_503_stays_a_503(call: str) -> None:
    path, body = CALLS[call]
    async with (
        ScriptedUpstream(json_answer({"error": {"message": SAID, "code": 503}}, 503)) as u,
        running_gateway(config(u.url)) as gw,
    ):
        error = assert_contract(await gw.post(body, path), 503)
        assert SAID in error["message"]
        metrics = await gw.at_rest()
        assert metrics.total("weir_endpoint_healthy") == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_rw_19_a_busy_engine_is_passed_over_for_another(status: int) -> None:
    async with (
        ScriptedUpstream(json_answer({"error": {"message": SAID}}, status, ("Retry-After", "7"))) as busy,
        ScriptedUpstream(chat_stream("ab")) as free,
        running_gateway(config(busy.url, free.url)) as gw,
    ):
        for _ in range(6):
            assert (await gw.post(r0())).content() == "ab"
        assert free.requests


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [401, 403])
async def test_rw_19_a_refused_credential_of_ours_is_our_problem(call: str, status: int) -> None:
    path, body = CALLS[call]
    async with (
        ScriptedUpstream(json_answer({"error": "Unauthorized"}, status, ("WWW-Authenticate", "Bearer"))) as u,
        running_gateway(config({"url": u.url, "api_key": "wrong-KEY"})) as gw,
    ):
        reply = await gw.post(body, path)
        error = assert_contract(reply, 502)
        assert error["code"] == "upstream_auth_failed"
        assert reply.header("x-should-retry") == "false"
        assert reply.header("www-authenticate") is None
        assert error["weir"]["retryable"] is False
        assert "wrong-KEY" not in reply.raw.decode()
        await gw.outcome("upstream_error")
        text = gw.logs.text
        assert "wrong-KEY" not in text
        assert any(word in text.lower() for word in ("credential", "api_key", "upstream_auth_failed"))


async def test_rw_19_an_endpoint_that_refuses_our_credential_is_ejected() -> None:
    async with (
        ScriptedUpstream(json_answer({"error": "Unauthorized"}, 401)) as bad,
        ScriptedUpstream(chat_stream("ab")) as good,
        running_gateway(config(bad.url, good.url)) as gw,
    ):
        while not bad.requests:
            assert (await gw.post(r0())).status in (200, 502)
            assert len(good.requests) < 50
        for _ in range(10):
            assert (await gw.post(r0())).content() == "ab"
        assert len(bad.requests) == 1
        assert (await gw.metrics()).total("weir_endpoint_healthy") == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [500, 501, 502, 504, 599])
async def test_rw_19_an_engines_failure_is_a_5xx_with_its_words(call: str, status: int) -> None:
    path, body = CALLS[call]
    async with (
        ScriptedUpstream(json_answer({"error": {"message": SAID, "code": status}}, status)) as u,
        running_gateway(config(u.url)) as gw,
    ):
        reply = await gw.post(body, path)
        assert reply.status in (status, 502)
        assert SAID in assert_contract(reply, reply.status)["message"]
        # 501 says that the engine lacks what the client asked for: nobody's failure
        await gw.outcome("upstream_error" if status != 501 else "client_error")


@pytest.mark.parametrize("call", CALLS)
async def test_rw_19_a_refused_connection_is_a_502(call: str) -> None:
    path, body = CALLS[call]
    async with running_gateway(config(f"http://127.0.0.1:{unused_port()}")) as gw:
        error = assert_contract(await gw.post(body, path), 502)
        assert error["weir"]["retryable"] is True
        await gw.outcome("upstream_error")


@pytest.mark.parametrize("stream", [True, False])
async def test_rw_19_a_connection_that_is_never_made_is_a_504(stream: bool) -> None:
    options = {"timeouts": {"connect": "200ms"}}
    with silent_listener() as port:
        async with running_gateway(config(f"http://127.0.0.1:{port}", pool_options=options)) as gw:
            reply = await gw.post(r0(stream=stream))
            assert reply.status in (502, 504)
            assert_contract(reply, reply.status)


@pytest.mark.parametrize("location", ["/v1/chat/completions/", "http://127.0.0.1:1/elsewhere"])
async def test_rw_19_an_engines_redirect_is_not_followed_nor_passed_on(location: str) -> None:
    async with (
        ScriptedUpstream([head(307, "", ("Location", location), length=0), end()]) as u,
        running_gateway(config(u.url)) as gw,
    ):
        reply = await gw.post(r0())
        assert_contract(reply, 502)
        assert reply.header("location") is None


def body_of(**changes: object) -> bytes:
    return json.dumps(r0() | changes).encode()


BAD_REQUESTS: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "broken JSON": (b'{"model":"m",', 400),
    "an array": (b"[]", 400),
    "a string": (b'"hi"', 400),
    "null": (b"null", 400),
    "no model": (json.dumps({"messages": []}).encode(), 400),
    "model is null": (body_of(model=None), 400),
    "model is a number": (body_of(model=7), 400),
    "model is a list": (body_of(model=["m"]), 400),
    "unknown model": (body_of(model="nope"), 404),
    "messages is text": (body_of(messages="hi"), 400),
    "messages is an object": (body_of(messages={"role": "user"}), 400),
    "no messages": (json.dumps({"model": "m"}).encode(), 400),
    "stream is text": (body_of(stream="yes"), 400),
    "stream options is text": (body_of(stream_options="usage"), 400),
}


@pytest.mark.parametrize("form", BAD_REQUESTS)
async def test_rw_20_a_bad_request_is_told_what_is_wrong(form: str) -> None:
    body, status = BAD_REQUESTS[form]
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        error = assert_contract(await gw.post(body), status)
        assert error["weir"]["retryable"] is False
        if "model" in form:
            assert error["param"] == "model"
        if "messages" in form:
            assert error["param"] == "messages"
        assert not u.requests
        await gw.outcome("client_error")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"model":7}'], ids=["empty", "broken", "array", "{}", "7"])
async def test_rw_20_bad_requests_on_other_paths_are_told_too(path: str, body: bytes) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        assert_contract(await gw.post(body, path), 400)
        assert not u.requests


@pytest.mark.parametrize("path", ["/", "/nothing", "/v2/models", "/v1/chat/nothing/x", "/v1"])
async def test_rw_20_an_unknown_path_is_a_json_404(path: str) -> None:
    async with (
        ScriptedUpstream(json_answer({"detail": "Not Found"}, 404)) as u,
        running_gateway(config(u.url)) as gw,
    ):
        reply = await gw.get(path)
        if path == "/":
            assert reply.status in (200, 404)
        if reply.status != 200:
            assert_contract(reply, 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("PUT", "/v1/chat/completions"),
        ("DELETE", "/v1/completions"),
        ("GET", "/v1/embeddings"),
        ("POST", "/health"),
        ("POST", "/metrics"),
    ],
)
async def test_rw_20_a_wrong_method_is_a_json_405_that_names_the_right_one(method: str, path: str) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.raw(request_bytes(method, path, b"{}" if method != "GET" else None))
        assert_contract(reply, 405)
        assert reply.header("allow")
        assert not u.requests


async def test_rw_20_an_engine_that_never_answers_is_a_504() -> None:
    options = {"timeouts": {"head": "200ms", "first_token": "200ms", "total": "400ms"}}
    async with ScriptedUpstream([hang()]) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        for stream in (True, False):
            error = assert_contract(await gw.post(r0(stream=stream)), 504)
            assert error["weir"]["endpoint"]
        await gw.outcome("timeout", 2)


async def test_rw_20_a_fault_of_our_own_is_a_500_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(*_: object) -> object:
        raise RuntimeError("CANARY of the fault")

    monkeypatch.setattr(type(adapters.ADAPTERS["vllm"]), "encode", encode)
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        for stream in (True, False):
            reply = await gw.post(r0(stream=stream))
            assert_contract(reply, 500)
            assert b"CANARY" not in reply.raw
        assert not u.requests
        await gw.outcome("internal_error", 2)
        assert "CANARY of the fault" in gw.logs.text


@pytest.mark.parametrize("data", [b"NONSENSE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1 HTTP/1.1\r\nx y\r\n\r\n"])
async def test_rw_20_what_is_not_http_is_refused_and_harms_nobody(data: bytes) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as connection:
            await connection.send(data)
            await connection.read_until(lambda _: False)
            assert connection.ended
        assert (await gw.post(r0())).content() == "ab"


BODIES: dict[str, tuple[str, bytes]] = {
    "OpenAI": ("json", json.dumps({"error": {"message": SAID, "type": "t", "param": None, "code": "c"}}).encode()),
    "flat": ("json", json.dumps({"object": "error", "message": SAID, "type": "t", "code": 400}).encode()),
    "message alone": ("json", json.dumps({"message": SAID}).encode()),
    "detail": ("json", json.dumps({"detail": SAID}).encode()),
    "list of details": (
        "json",
        json.dumps({"detail": [{"type": "missing", "loc": ["body", "model"], "msg": SAID, "input": {}}]}).encode(),
    ),
    "error as text": ("json", json.dumps({"error": SAID, "error_type": "validation"}).encode()),
    "a JSON string": ("json", json.dumps(SAID).encode()),
    "plain text": ("text", SAID.encode()),
    "plain text said to be JSON": ("json", SAID.encode()),
    "HTML": ("html", f"<html><head><title>{SAID}</title></head><body><h1>{SAID}</h1></body></html>".encode()),
    "an event stream": ("sse", b"data: " + json.dumps({"error": {"message": SAID}}).encode() + b"\n\n"),
}


@pytest.mark.parametrize(("form", "engine"), spread(BODIES))
@pytest.mark.parametrize("status", [400, 503])
async def test_rw_20_an_engines_error_of_any_shape_becomes_one_the_sdk_shows(
    engine: str, form: str, status: int
) -> None:
    kind, body = BODIES[form]
    script: Script = [head(status, kind, length=len(body)), raw(body), end()]  # type: ignore[arg-type]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        for stream in (True, False):
            assert SAID in assert_contract(await gw.post(r0(stream=stream)), status)["message"]
        await assert_sdk_shows(gw, SAID, status)


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"\xff\xfe", b" ", b'{"error":null}', b'{"error":{}}', b"[]"])
@pytest.mark.parametrize("status", [400, 500, 503])
async def test_rw_20_an_error_without_words_still_has_a_message(body: bytes, status: int) -> None:
    async with ScriptedUpstream(json_answer(body, status)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.status == status or (status, reply.status) == (500, 502)
        assert_contract(reply, reply.status)


async def test_rw_20_a_very_long_error_of_an_engine_is_cut() -> None:
    body = json.dumps({"error": {"message": "x" * 5_000_000}}).encode()
    async with ScriptedUpstream(json_answer(body, 400)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert_contract(reply, 400)
        assert len(reply.body) < 1_000_000


async def test_rw_20_an_error_body_that_never_ends_is_not_waited_for() -> None:
    options = {"timeouts": {"head": "300ms", "first_token": "300ms", "stall": "300ms"}}
    script = [head(400, "json"), raw(b'{"error":{"mess'), hang()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        reply = await gw.post(r0())
        assert reply.status in (400, 502, 504)
        assert_contract(reply, reply.status)
