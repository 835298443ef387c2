"""Whole answers of Ollama's, as OpenAI's clients read them."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from typing import Any

import pytest

from adapters.ollama import OLLAMA
from adapters.types import (
    AdapterError,
    Answer,
    AnswerReader,
    EngineFailed,
    EngineTimings,
    MalformedStream,
    Operation,
    TruncatedStream,
    Usage,
)
from tests.adapters.ollama_calls import END, HI, Json, call, ended, generated, line, said
from tests.fakes.answer_heads import answer_head

CALLS: list[Json] = [
    {"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"x": 1}}},
    {"function": {"name": "g"}},
]
CALLED = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
    {"id": "call_r1_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]


def reader(operation: Operation = "chat", *, streamed: bool = False, **fields: Any) -> AnswerReader:
    kind = "application/x-ndjson" if streamed else "application/json; charset=utf-8"
    return OLLAMA.answer_reader(call({**HI, **fields}, operation), answer_head(kind), streamed=streamed)


def read(*pieces: bytes, operation: Operation = "chat", **fields: Any) -> Answer:
    subject = reader(operation, **fields)
    for piece in pieces:
        subject.feed(piece)
    return subject.close()


def told(*pieces: bytes, operation: Operation = "chat", **fields: Any) -> Json:
    answer: Json = json.loads(read(*pieces, operation=operation, **fields).body)
    return answer


def whole(**message: Any) -> bytes:
    """One answer of ``/api/chat`` without a stream; it ends without a line feed."""
    return line(message={"role": "assistant", "content": "", **message}, **END).rstrip()


def test_a_chat_is_a_completion() -> None:
    assert told(whole(content="Hello")) == {
        "id": "chatcmpl-r1",
        "object": "chat.completion",
        "created": 1_787_300_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21},
    }


def test_a_completion_is_a_text_completion() -> None:
    answer = told(line(response=" was", context=[1, 2], **END), operation="text_completion")
    assert (answer["id"], answer["object"]) == ("cmpl-r1", "text_completion")
    assert answer["choices"] == [{"index": 0, "text": " was", "logprobs": None, "finish_reason": "stop"}]


def test_thinking_has_both_names() -> None:
    message = told(whole(content="a", thinking="hm"))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_content": "hm"}


def test_calls_are_put_right() -> None:
    choice = told(whole(tool_calls=CALLS))["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": CALLED}
    assert choice["finish_reason"] == "tool_calls"


def test_a_stream_gives_the_same_as_one_object() -> None:
    pieces = (said("", thinking="h"), said("a", thinking="m"), said("b"), said("", tool_calls=CALLS), ended())
    assert told(*pieces) == told(whole(content="ab", thinking="hm", tool_calls=CALLS))
    assert told(generated("a"), generated("b"), line(**END), operation="text_completion") == told(
        line(response="ab", **END), operation="text_completion"
    )


def test_outputs_of_a_stream_are_counted_as_they_come() -> None:
    subject = reader(streamed=True)
    counted: list[int] = []
    for piece in (said(""), said("a"), said("", thinking="b"), ended()):
        subject.feed(piece)
        counted.append(subject.outputs)
    assert counted == [0, 1, 2, 2]
    assert subject.close().outputs == 1


@pytest.mark.parametrize("body", [whole(content="北京😀é"), said("北京") + said("😀é", tool_calls=CALLS) + ended()])
def test_cut_at_every_byte_it_is_the_same(body: bytes) -> None:
    expected = read(body)
    for at in range(len(body) + 1):
        assert read(body[:at], body[at:]) == expected
        if at < len(body) - 1:
            with pytest.raises((TruncatedStream, MalformedStream)):
                read(body[:at])


def test_logprobs_are_in_each_ones_shape() -> None:
    native = [{"token": "a", "logprob": -1, "bytes": [97]}, {"token": "b", "logprob": -2}]
    chat = told(line(message={"content": "ab"}, logprobs=native, **END))["choices"][0]["logprobs"]
    assert [item["token"] for item in chat["content"]] == ["a", "b"]
    assert chat["content"][1] == {"token": "b", "logprob": -2, "bytes": None, "top_logprobs": []}
    text = told(line(response="ab", logprobs=native, **END), operation="text_completion")["choices"][0]["logprobs"]
    assert text == {"tokens": ["a", "b"], "token_logprobs": [-1, -2], "top_logprobs": [{}, {}], "text_offset": [0, 1]}


def test_the_engines_own_times_are_kept() -> None:
    subject = reader()
    subject.feed(ended())
    assert subject.close().timings == pytest.approx(
        EngineTimings(queue_s=0.09, load_s=0.002, prefill_s=0.04, decode_s=0.18)
    )


def test_counts_that_are_not_told_are_estimated() -> None:
    answer = read(line(message={"content": "x" * 40}, done=True))
    assert answer.usage is not None
    assert answer.usage.estimated
    assert answer.usage.completion_tokens == 10
    assert json.loads(answer.body)["usage"]["weir_estimated"] is True


def test_half_an_emoji_is_no_reason_to_lose_an_answer() -> None:
    assert told(b'{"message":{"content":"\\ud83d"},"done":true}')["choices"][0]["message"]["content"] == "\ud83d"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", TruncatedStream),
        (said("a"), TruncatedStream),
        (whole(content="a").replace(b'"done":true', b'"done":false'), TruncatedStream),
        (whole().replace(b'"stop"', b'"load"'), EngineFailed),
        (b'{"error":"gone"}', EngineFailed),
        (said("a") + b'{"error":"gone"}\n', EngineFailed),
        (b"nonsense", MalformedStream),
        (b"[]\n", MalformedStream),
        (b"\xff", MalformedStream),
    ],
)
@pytest.mark.parametrize("operation", ["chat", "text_completion"])
def test_what_is_no_answer_raises(operation: Operation, body: bytes, kind: type[AdapterError]) -> None:
    with pytest.raises(kind):
        read(body, operation=operation)


def test_a_whole_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.openai_answer.MAX_ANSWER_BYTES", 1000)
    operations: tuple[Operation, ...] = ("chat", "text_completion", "embeddings")
    for operation in operations:
        subject = reader(operation)
        subject.feed(said("a" * 500))
        with pytest.raises(MalformedStream, match="larger"):
            subject.feed(said("a" * 500))


# --- embeddings

VECTORS = [[0.25, -1.5, 3], [1e-3, 0.0, 2.0]]


def embedded(**fields: Any) -> bytes:
    return line(embeddings=VECTORS, total_duration=1, **fields)


def test_embeddings_are_a_list() -> None:
    assert told(embedded(prompt_eval_count=7), operation="embeddings") == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": VECTORS[0]},
            {"object": "embedding", "index": 1, "embedding": VECTORS[1]},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert read(embedded(prompt_eval_count=7), operation="embeddings").usage == Usage(7, 0)


def test_embeddings_in_base64_are_little_endian_floats() -> None:
    data = told(embedded(), operation="embeddings", encoding_format="base64")["data"]
    assert [struct.unpack("<3f", b64decode(item["embedding"])) for item in data] == [
        (0.25, -1.5, 3.0),
        pytest.approx((1e-3, 0.0, 2.0)),
    ]


def test_embeddings_without_a_count_have_an_estimate() -> None:
    answer = read(embedded(), operation="embeddings")
    assert answer.usage is not None
    assert answer.usage.estimated
    assert json.loads(answer.body)["usage"]["weir_estimated"] is True


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize(
    "bad", [None, 1, "a", {}, [1], [None], ["a"], [[None]], [["1"]], [[[1]]], [[10**400]], [{"a": 1}]]
)
def test_embeddings_that_are_none_raise(bad: Any, encoding: str) -> None:
    with pytest.raises(MalformedStream):
        read(line(embeddings=bad), operation="embeddings", encoding_format=encoding)


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"embeddings"', b"{}", b"\xff", b"[" * 100_000])
def test_bodies_that_are_none_raise(body: bytes) -> None:
    with pytest.raises(MalformedStream):
        read(body, operation="embeddings")


def test_an_error_instead_of_embeddings_is_one() -> None:
    with pytest.raises(EngineFailed, match="too long"):
        read(b'{"error":"too long"}', operation="embeddings")
