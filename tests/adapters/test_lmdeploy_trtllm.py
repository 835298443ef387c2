"""LMDeploy and TensorRT-LLM: OpenAI's dialect but for what is tested here.

Nothing here was recorded, as the engines need a GPU: the frames are those that their sources write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from adapters.bodies import read_object
from adapters.lmdeploy import LMDEPLOY
from adapters.trtllm import TRTLLM
from adapters.types import Adapter, EngineFailed, GatewayRequest, Operation, TruncatedStream, Usage
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]

BOTH: tuple[Adapter, ...] = (LMDEPLOY, TRTLLM)
PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "other": "/v1/encode",
}
CHAT: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}
USAGE: Json = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
both = pytest.mark.parametrize("adapter", BOTH, ids=lambda adapter: adapter.name)


def call(body: Json, operation: Operation = "chat", raw: bytes | None = None) -> GatewayRequest:
    data = json.dumps(body).encode() if raw is None else raw
    stream = body.get("stream") is True
    return GatewayRequest("r1", operation, PATHS[operation], "POST", "m", stream, data, read_object(data), 1)


# --- requests


@both
def test_the_engine_is_told_apart_and_probed_by_an_instant_path(adapter: Adapter) -> None:
    assert adapter.name in ("lmdeploy", "trtllm")
    assert adapter.health_path == "/health"
    assert 0 < adapter.idle_s < 5


@both
def test_a_body_that_needs_no_change_goes_out_byte_for_byte(adapter: Adapter) -> None:
    asked = call({**CHAT, "presence_penalty": 0, "top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1, "n": 2})
    assert adapter.encode(asked, "m").body == asked.raw
    assert adapter.encode(asked, "m").dropped == ()


@both
def test_nulls_are_left_out_and_usage_is_asked_for(adapter: Adapter) -> None:
    asked = call({**CHAT, "stream": True, "min_p": None, "n": None, "presence_penalty": None})
    upstream = adapter.encode(asked, "x")
    expected = {**CHAT, "model": "x", "stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(upstream.body) == expected
    assert upstream.stream


def test_lmdeploys_penalties_without_effect_are_left_out_and_named() -> None:
    asked = call({**CHAT, "presence_penalty": 0.5, "frequency_penalty": -1, "user": None, "stream": True})
    upstream = LMDEPLOY.encode(asked, "x")
    expected = {**CHAT, "model": "x", "stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(upstream.body) == expected
    assert upstream.dropped == ("presence_penalty", "frequency_penalty")
    assert asked.body["presence_penalty"] == 0.5, "the request is left alone"


def test_trtllm_takes_the_penalties() -> None:
    asked = call({**CHAT, "presence_penalty": 0.5})
    assert TRTLLM.encode(asked, "m").body == asked.raw


def test_lmdeploy_has_no_embeddings() -> None:
    with pytest.raises(EngineFailed, match="lmdeploy cannot make embeddings") as refused:
        LMDEPLOY.encode(call({"model": "m", "input": "a"}, "embeddings"), None)
    assert (refused.value.status, refused.value.code) == (400, "unsupported_parameter")


@both
def test_other_paths_keep_their_fields(adapter: Adapter) -> None:
    body = {"model": "m", "input": "a", "presence_penalty": 1}
    upstream = adapter.encode(call(body, "other"), "x")
    assert json.loads(upstream.body) == {**body, "model": "x"}
    assert upstream.dropped == ()


@pytest.mark.parametrize("text", ['the "model" \\ é😀\n', "plain"])
def test_a_large_prompt_arrives_whole(text: str) -> None:
    asked = call({**CHAT, "messages": [{"role": "user", "content": text * 20_000}], "presence_penalty": 1})
    assert json.loads(LMDEPLOY.encode(asked, "x").body)["messages"] == [{"role": "user", "content": text * 20_000}]


def test_a_body_that_is_no_json_where_it_was_not_looked_at_is_the_clients_mistake() -> None:
    raw = b'{"model":"m","presence_penalty":1,"messages":[{"content":"%b\\q%b"}]}' % (b"a" * 30_000, b"a" * 30_000)
    with pytest.raises(EngineFailed, match="not valid JSON") as refused:
        LMDEPLOY.encode(call({}, raw=raw), None)
    assert refused.value.status == 400


# --- streams


def chunk(delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "e",
        "choices": [choice],
        "usage": None,
    }


CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "hm"}),
    *(chunk({"content": text}) for text in ("Hel", "lo 😀", " !")),
    chunk({"content": ""}, "stop"),
]
LAST: Json = {**chunk({}), "choices": [], "usage": USAGE}
DONE = b"data: [DONE]\n\n"


def frames(chunks: Iterable[Json]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(part, ensure_ascii=False).encode() for part in chunks)


def asked_for(*, usage: bool) -> GatewayRequest:
    return call({**CHAT, "stream": True, "stream_options": {"include_usage": usage}})


def for_client(part: Json) -> Json:
    part = json.loads(json.dumps({**part, "model": "m"}))
    for choice in part["choices"]:
        if "reasoning_content" in choice["delta"]:
            choice["delta"]["reasoning"] = choice["delta"]["reasoning_content"]
    return part


@both
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_cut_at_every_byte_comes_out_the_same(adapter: Adapter, usage: bool) -> None:
    body = frames([*CHUNKS, LAST]) + DONE
    expected = [for_client(part) for part in (*CHUNKS, *([LAST] if usage else []))]
    for at in range(len(body)):
        decoder = adapter.stream_decoder(asked_for(usage=usage))
        out = decoder.feed(body[:at]) + decoder.feed(body[at:]) + decoder.close()
        assert [json.loads(block[6:]) for block in out.split(b"\n\n")[:-1]] == expected
        assert (decoder.finished, decoder.outputs, decoder.usage) == (True, 4, Usage(5, 2))


@both
def test_a_stream_that_breaks_off_is_cut_even_after_its_finish_reason(adapter: Adapter) -> None:
    body = frames([*CHUNKS, LAST])
    for at in range(len(body)):
        decoder = adapter.stream_decoder(asked_for(usage=True))
        decoder.feed(body[:at])
        with pytest.raises(TruncatedStream):
            decoder.close()
        assert not decoder.finished


@pytest.mark.parametrize(("code", "status"), [(400, 400), (503, 503), ("internal_error", 502), (None, 502)])
def test_lmdeploys_error_event_counts_and_not_the_done_behind_it(code: object, status: int) -> None:
    error = {"error": {"message": "no room", "type": "t", "code": code, "param": "p"}}
    body = frames([*CHUNKS[:3], error]) + DONE
    for at in range(len(body)):
        decoder = LMDEPLOY.stream_decoder(asked_for(usage=True))
        out = decoder.feed(body[:at]) + decoder.feed(body[at:])
        with pytest.raises(EngineFailed, match="no room") as told:
            decoder.close()
        assert (told.value.status, told.value.type, told.value.param) == (status, "t", "p")
        assert [json.loads(block[6:]) for block in out.split(b"\n\n")[:-1]] == [for_client(part) for part in CHUNKS[:3]]


@both
@pytest.mark.parametrize("reason", ["error", "abort", "cancelled"])
def test_an_answer_that_the_engine_broke_off_is_none(adapter: Adapter, reason: str) -> None:
    decoder = adapter.stream_decoder(asked_for(usage=False))
    decoder.feed(frames([*CHUNKS[:-1], chunk({}, reason)]) + DONE)
    with pytest.raises(EngineFailed) as told:
        decoder.close()
    assert (told.value.status, told.value.code) == (502, reason)


# --- whole answers and errors


@both
def test_a_whole_answer_has_the_clients_name_of_the_model(adapter: Adapter) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}}
    answer = {"id": "1", "object": "chat.completion", "model": "e", "choices": [choice], "usage": usage}
    reader = adapter.answer_reader(call(CHAT), answer_head(), streamed=False)
    reader.feed(json.dumps(answer).encode())
    read = reader.close()
    assert json.loads(read.body) == {**answer, "model": "m"}
    assert read.usage == Usage(5, 2, 3)


@both
@pytest.mark.parametrize(
    ("status", "body", "message", "code"),
    [
        (400, {"object": "error", "message": "too long", "type": "bad", "code": 400, "param": None}, "too long", "400"),
        (404, {"message": "none such", "type": "NotFoundError", "code": 404, "param": "model"}, "none such", "404"),
        (400, {"error": "[{'msg': 'Extra inputs'}]"}, "[{'msg': 'Extra inputs'}]", None),
        (500, {"message": "out of memory", "type": "InternalServerError", "code": 500}, "out of memory", "500"),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "not a number"}]}, "body.n: not a number", None),
    ],
)
def test_errors_are_flat_or_a_text(adapter: Adapter, status: int, body: Json, message: str, code: str | None) -> None:
    told = adapter.read_error(status, json.dumps(body).encode())
    assert (told.status, told.message, told.code) == (status, message, code)


@both
def test_errors_without_a_body_have_a_message(adapter: Adapter) -> None:
    assert adapter.read_error(503, b"").message
    assert adapter.read_error(500, b"Internal Server Error").status == 500
