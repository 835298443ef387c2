"""TGI's whole answers and its refusals, spelled as its page has them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from adapters.tgi import TGI
from adapters.types import AdapterError, Answer, EngineFailed, MalformedStream, Operation, Usage
from tests.adapters.tgi_wire import CLIENT_MODEL, USAGE, answer, call
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]


def read(body: bytes, operation: Operation = "chat", model: str = CLIENT_MODEL) -> Answer:
    reader = TGI.answer_reader(call({"model": model}, operation), answer_head(), streamed=False)
    for at in range(0, len(body), 50):
        reader.feed(body[at : at + 50])
    assert reader.outputs == 0
    return reader.close()


def read_value(value: Json, operation: Operation = "chat") -> Json:
    body: Json = json.loads(read(json.dumps(value).encode(), operation).body)
    return body


# --- answers


def test_an_answer_gets_an_id_and_the_clients_model_and_keeps_all_else() -> None:
    value = answer({"role": "assistant", "content": 'Hi "you" \u5317'})
    assert read_value(value) == {**value, "id": "chatcmpl-r1", "model": CLIENT_MODEL}
    got = read(json.dumps(value).encode())
    assert (got.usage, got.outputs) == (Usage(12, 3), 1)


def test_an_answer_that_is_right_keeps_its_bytes() -> None:
    body = json.dumps({**answer({"role": "assistant", "content": "Hi"}), "id": "x"}).encode()
    assert read(body, model="org/model").body == body


@pytest.mark.parametrize(("theirs", "ours"), [("stop", "stop"), ("stop_sequence", "stop"), ("length", "length")])
def test_finish_reasons_are_openais(theirs: str, ours: str) -> None:
    got = read_value(answer({"role": "assistant", "content": "Hi"}, theirs))
    assert got["choices"][0]["finish_reason"] == ours


@pytest.mark.parametrize("arguments", ['{"city":"Oslo"}', {"city": "Oslo"}])
def test_a_tool_call_has_an_id_of_its_own_and_arguments_as_text(arguments: Any) -> None:
    function = {"description": None, "name": "get_weather", "arguments": arguments}
    called = {"id": "0", "type": "function", "function": function}
    choice = read_value(answer({"role": "assistant", "tool_calls": [called]}))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**called, "id": "call_r1_0", "function": {**function, "arguments": '{"city":"Oslo"}'}}],
    }


def test_a_completion_of_several_prompts_is_read() -> None:
    choices = [{"index": i, "text": "x", "logprobs": None, "finish_reason": "stop"} for i in (0, 1)]
    value = {"object": "text_completion", "id": "", "model": "org/model", "choices": choices, "usage": USAGE}
    assert read_value(value, "text_completion") == {**value, "id": "cmpl-r1", "model": CLIENT_MODEL}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'"x"', b"{}", b'{"choices":{}}', b"<html>", b"\xff"])
def test_what_is_no_answer_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedStream):
        read(body)


def test_a_whole_answer_cut_anywhere_is_malformed() -> None:
    body = json.dumps(answer({"role": "assistant", "content": "Hi"})).encode()
    for length in range(len(body)):
        with pytest.raises(MalformedStream):
            read(body[:length])


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"error": "Model is overloaded", "error_type": "overloaded"}, 429),
        ({"error": {"message": "Input validation error: x", "http_status_code": 422}}, 400),
        ({"error": "Request failed during generation: x", "error_type": "generation"}, 502),
    ],
)
def test_an_error_in_a_200_is_read(value: Json, status: int) -> None:
    with pytest.raises(EngineFailed) as failed:
        read(json.dumps(value).encode())
    assert failed.value.status == status


LEAVES: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", [], {}, [None], [[]], [{}], {"a": 1}, "\ud800")


@pytest.mark.parametrize("operation", ["chat", "text_completion", "embeddings"])
def test_json_of_any_shape_raises_only_adapter_errors(operation: Operation) -> None:
    right = answer({"role": "assistant", "tool_calls": [{"id": "0", "function": {"arguments": {}}}]})
    for leaf in LEAVES:
        odd = [{**right, key: leaf} for key in right]
        odd += [{**right, "choices": [leaf]}, {**right, "choices": [{"message": leaf}]}]
        odd += [answer({"tool_calls": leaf}), answer({"tool_calls": [leaf]}), answer({"content": leaf})]
        odd.append(answer({"tool_calls": [{"function": leaf}]}))
        odd.append(answer({"tool_calls": [{"function": {"arguments": leaf}}]}))
        for value in odd:
            with suppress(AdapterError):
                read(json.dumps(value).encode(), operation)


def test_numbers_that_json_does_not_have_are_kept() -> None:
    body = json.dumps({**answer({"role": "assistant", "content": "x"}), "score": float("nan")}).encode()
    assert b"NaN" in read(body).body


# --- refusals

REFUSALS: list[tuple[int, bytes, int, str, str | None]] = [
    (429, b'{"error":"Model is overloaded","error_type":"overloaded"}', 429, "Model is overloaded", "overloaded"),
    (
        422,
        b'{"error":"Input validation error: `top_p` must be > 0.0 and < 1.0","error_type":"validation"}',
        400,
        "Input validation error: `top_p` must be > 0.0 and < 1.0",
        "validation",
    ),
    (422, b'{"error":"Tool error: x","error_type":"tool_error"}', 400, "Tool error: x", "tool_error"),
    (424, b'{"error":"Request failed during generation: x","error_type":"generation"}', 502, "Request", "generation"),
    (500, b'{"error":"Incomplete generation","error_type":"incomplete_generation"}', 500, "Incomplete", None),
    (503, b'{"error":"unhealthy","error_type":"healthcheck"}', 503, "unhealthy", "healthcheck"),
    (400, b"Failed to parse the request body as JSON: EOF", 400, "Failed to parse the request body as JSON: EOF", None),
    (422, b"Failed to deserialize the JSON body into the target type: stop", 400, "Failed to deserialize", None),
    (415, b"Expected request with `Content-Type: application/json`", 415, "Expected request", None),
    (413, b"length limit exceeded", 413, "length limit exceeded", None),
    (401, b"", 401, "the engine answered 401", None),
    (404, b"", 404, "the engine answered 404", None),
]


@pytest.mark.parametrize(("status", "body", "meant", "message", "kind"), REFUSALS)
def test_a_refusal_is_read_into_the_engines_own_words(
    status: int, body: bytes, meant: int, message: str, kind: str | None
) -> None:
    error = TGI.read_error(status, body)
    assert error.status == meant
    assert error.message.startswith(message)
    assert kind is None or error.type == kind


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"null", b'{"error":{}}', b'{"error":[1]}', b"[" * 100_000, b"\xff\x00"]
)
def test_a_refusal_of_any_shape_is_read(body: bytes) -> None:
    error = TGI.read_error(500, body)
    assert error.status == 500
    assert error.message
