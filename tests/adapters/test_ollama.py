"""The Ollama adapter as the gateway sees it: paths, names, other calls, and refusals."""

from __future__ import annotations

import json

import pytest

from adapters.ollama import OLLAMA, Ollama
from adapters.types import Adapter, EngineFailed, GatewayRequest, Operation
from tests.adapters.ollama_calls import HI, Json, call


def test_it_is_an_adapter() -> None:
    adapter: Adapter = OLLAMA
    assert adapter == Ollama()
    assert adapter.name == "ollama"
    assert adapter.health_path == "/api/version"
    assert 0 < adapter.idle_s < 5


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("chat", "/api/chat"),
        ("text_completion", "/api/generate"),
        ("embeddings", "/api/embed"),
        ("other", "/v1/responses"),
    ],
)
def test_each_operation_goes_to_its_path(operation: Operation, path: str) -> None:
    upstream = OLLAMA.encode(call({**HI, "prompt": "a", "input": "a"}, operation), "engine:8b")
    assert upstream.path == path
    assert json.loads(upstream.body)["model"] == "engine:8b"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("operation", ["chat", "text_completion"])
def test_the_engine_is_told_whether_to_stream_since_it_would_by_itself(operation: Operation, stream: bool) -> None:
    upstream = OLLAMA.encode(call({**HI, "prompt": "a", "stream": stream}, operation), "engine:8b")
    assert json.loads(upstream.body)["stream"] is stream
    assert upstream.stream is stream


def test_a_model_name_of_none_leaves_the_clients() -> None:
    assert json.loads(OLLAMA.encode(call(HI), None).body)["model"] == "m"


@pytest.mark.parametrize("raw", [b"", b"--b\r\nform\r\n--b--"])
def test_what_is_no_json_is_passed_as_it_is(raw: bytes) -> None:
    asked = GatewayRequest("r", "other", "/v1/models?a=b", "GET", "m", False, raw, {}, 1)
    upstream = OLLAMA.encode(asked, "engine:8b")
    assert (upstream.body, upstream.path, upstream.stream) == (raw, "/v1/models?a=b", False)


def test_other_calls_keep_what_the_native_api_does_not_know() -> None:
    body: Json = {"model": "m", "input": "a", "tool_choice": "required", "user": None}
    upstream = OLLAMA.encode(call(body, "other"), "engine:8b")
    assert json.loads(upstream.body) == {**body, "model": "engine:8b"}


def test_a_large_prompt_arrives_whole() -> None:
    text = 'the "model" \\ ' + "é😀\n" * 20_000
    request = call({**HI, "messages": [{"role": "user", "content": text}]})
    assert json.loads(OLLAMA.encode(request, "engine:8b").body)["messages"] == [{"role": "user", "content": text}]


def test_encoding_leaves_the_request_alone() -> None:
    body: Json = {**HI, "options": {"top_k": 1, "num_ctx": 8}, "temperature": 0, "stop": "a", "user": None}
    request = call(body)
    OLLAMA.encode(request, "engine:8b")
    assert dict(request.body) == body


def test_a_large_body_that_is_broken_inside_a_string_is_the_clients_mistake() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 20_000 + b"\\q" + b"x" * 20_000 + b'"}]}'
    with pytest.raises(EngineFailed, match="not valid JSON") as caught:
        OLLAMA.encode(call(HI, raw=raw), "engine:8b")
    assert caught.value.status == 400


@pytest.mark.parametrize("depth", [300, 1000])
def test_a_deeply_nested_body_is_written_or_the_clients_mistake(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    raw = b'{"model":"m","messages":[{"role":"user","content":"a"}],"format":%b}' % deep
    try:
        written = OLLAMA.encode(call(HI, raw=raw), "engine:8b").body
    except EngineFailed as error:
        written, status = b"", error.status
    else:
        status = 400
    assert status == 400
    assert not written or deep in written


# --- refusals


@pytest.mark.parametrize(
    ("status", "body", "message", "code"),
    [
        (404, b'{"error":"model \'x\' not found"}', "model 'x' not found", "model_not_found"),
        (404, b"404 page not found", "404 page not found", None),
        (400, b'{"error":"\\"x\\" does not support tools"}', '"x" does not support tools', None),
        (503, b'{"error":"server busy, please try again."}', "server busy, please try again.", None),
        (500, b'{"StatusCode":500,"Status":"","error":"model runner has unexpectedly stopped"}', "stopped", None),
        (401, b'{"error":"unauthorized","signin_url":"https://e.test"}', "unauthorized", None),
        (
            400,
            b'{"error":{"message":"invalid input","type":"invalid_request_error","param":null,"code":null}}',
            "invalid input",
            None,
        ),
        (500, b"", "answered 500 without a message", None),
        (502, b"<html><body>bad gateway</body></html>", "bad gateway", None),
        (500, b"\xff\x00", "\x00", None),
        (403, b"", "OLLAMA_HOST", None),
        (403, b'{"error":"remote inference is unavailable"}', "remote inference", None),
    ],
)
def test_errors_of_every_shape_are_read(status: int, body: bytes, message: str, code: str | None) -> None:
    error = OLLAMA.read_error(status, body)
    assert error.status == status
    assert message in error.message
    assert error.code == code


def test_an_error_of_the_process_behind_the_engine_is_taken_out_of_its_wrapping() -> None:
    inner = {"error": {"code": 400, "message": "the request exceeds the context", "type": "exceed_context_size_error"}}
    error = OLLAMA.read_error(400, json.dumps({"error": json.dumps(inner)}).encode())
    assert error.message == "the request exceeds the context"
    assert error.type == "exceed_context_size_error"


@pytest.mark.parametrize("text", ["{", "{}", '{"a": 1}', "{not json}", "\ud800", "{\ud800"])
def test_a_message_that_only_looks_like_json_stays(text: str) -> None:
    error = OLLAMA.read_error(500, json.dumps({"error": text}).encode())
    assert (error.status, error.message) == (500, text)
