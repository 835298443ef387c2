"""Errors that come with a 200, in a stream or as the whole body: found in any shape, and told in the engine's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters import ADAPTERS
from adapters.types import AdapterError, EngineFailed, Operation
from tests.adapters.ollama_calls import call
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]
OPENAI_SPEAKERS = ["openai", "vllm", "sglang", "llamacpp", "tgi", "lightllm", "lmdeploy", "trtllm"]
SHAPES: dict[str, Json] = {
    "object": {"error": {"message": "out of memory", "code": 503}},
    "text": {"error": "out of memory", "code": 503},
    "flagged": {"error": True, "message": "out of memory", "status_code": 503},
    "list": {"error": ["out of memory"], "code": 503},
    "flat": {"object": "error", "message": "out of memory", "code": 503},
    "bare": {"message": "out of memory", "type": "server_error", "param": None, "code": 503},
    "detail": {"detail": "out of memory", "status": 503},
}
CHUNK: Json = {
    "id": "c1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}],
}
shapes = pytest.mark.parametrize("shape", SHAPES)
speakers = pytest.mark.parametrize("name", OPENAI_SPEAKERS)


def told(failure: AdapterError | None) -> str:
    assert isinstance(failure, EngineFailed)
    assert 500 <= failure.status <= 503
    return failure.message


@speakers
@shapes
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_an_error_in_a_stream_ends_it_and_is_no_chunk(name: str, shape: str, before: int, size: int) -> None:
    decoder = ADAPTERS[name].stream_decoder(call({"model": "m", "stream": True, "messages": []}))
    events = [*[CHUNK] * before, SHAPES[shape]]
    wire = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    out = b"".join(decoder.feed(wire[at : at + size]) for at in range(0, len(wire), size))
    assert out.count(b"data: ") == before
    assert told(decoder.error) == "out of memory"
    assert not decoder.finished


@speakers
@shapes
@pytest.mark.parametrize("operation", ["chat", "text_completion", "embeddings"])
def test_an_error_in_place_of_an_answer_is_one(name: str, shape: str, operation: Operation) -> None:
    asked = call({"model": "m", "messages": [], "prompt": "hi", "input": "hi"}, operation)
    reader = ADAPTERS[name].answer_reader(asked, answer_head("application/json"), streamed=False)
    reader.feed(json.dumps(SHAPES[shape]).encode())
    with pytest.raises(EngineFailed) as failed:
        reader.close()
    assert told(failed.value) == "out of memory"


@speakers
@pytest.mark.parametrize("empty", [None, "", False])
def test_an_empty_error_is_none(name: str, empty: object) -> None:
    decoder = ADAPTERS[name].stream_decoder(call({"model": "m", "stream": True, "messages": []}))
    last: Json = {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "message": "not an error"}
    wire: list[Json] = [{**CHUNK, "error": empty}, {"error": empty}, last]
    out = b"".join(decoder.feed(b"data: %b\n\n" % json.dumps(event).encode()) for event in wire)
    decoder.feed(b"data: [DONE]\n\n")
    assert decoder.finished
    assert out.count(b"data: ") == 2


@speakers
@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": []}], ids=str)
def test_what_comes_beside_the_choices_has_a_list_of_them_for_clients_to_look_into(name: str, choices: Json) -> None:
    decoder = ADAPTERS[name].stream_decoder(call({"model": "m", "stream": True, "messages": []}))
    out = decoder.feed(b"data: %b\n\n" % json.dumps({"id": "c1", "model": "m", **choices, "sglext": {"x": 1}}).encode())
    assert json.loads(out.removeprefix(b"data: ")) == {"id": "c1", "model": "m", "choices": [], "sglext": {"x": 1}}


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(
    "around",
    [
        b'{"error": %b}',
        b'{"detail": %b}',
        b'{"message": %b}',
        b'{"detail": [{"loc": %b, "msg": %b}]}',
        b'{"error": {"message": "a", "type": %b, "param": %b}}',
    ],
)
@pytest.mark.parametrize("depth", [100, 300, 900, 997])
def test_an_error_nested_too_deeply_to_be_shown_is_still_one(name: str, around: bytes, depth: int) -> None:
    body = around.replace(b"%b", b"[" * depth + b"]" * depth)
    assert ADAPTERS[name].read_error(500, body).message


@pytest.mark.parametrize("loc", [5, "body", None, {"a": 1}, [], ["body", 3]])
def test_a_place_of_any_type_is_no_fault(loc: object) -> None:
    failure = ADAPTERS["vllm"].read_error(422, json.dumps({"detail": [{"loc": loc, "msg": "wrong"}]}).encode())
    assert failure.message.endswith("wrong")
