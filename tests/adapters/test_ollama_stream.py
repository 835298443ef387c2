"""Ollama's NDJSON streams, as OpenAI's clients read them."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.framing import MAX_FRAME_BYTES
from adapters.types import (
    AdapterError,
    EngineFailed,
    EngineTimings,
    MalformedStream,
    Operation,
    TruncatedStream,
    Usage,
)
from tests.adapters.ollama_calls import (
    Json,
    choices,
    chunks,
    decoded,
    decoder,
    deltas,
    ended,
    generated,
    line,
    said,
)

F: Json = {"function": {"index": 0, "name": "f", "arguments": {"x": 1}}}
G: Json = {"function": {"index": 0, "name": "g", "arguments": {"y": "é"}}}
CHAT = (
    said("", thinking="Let me")
    + said("北京😀é")
    + said('"quoted"\n\\')
    + said("", tool_calls=[{"id": "call_ab12cd34", **F}, G])
    + ended()
)
GENERATE = generated(" was") + generated(" 北😀") + line(response="", context=[1, 2, 3], **{"done": True})


# --- chunks


def test_a_chat_comes_out_as_chunks() -> None:
    out = chunks(decoded(said("Hel"), said("lo"), ended()))
    head = {"id": "chatcmpl-r1", "object": "chat.completion.chunk", "created": 1_787_300_000, "model": "m"}
    assert out == [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]


def test_a_completion_comes_out_as_chunks() -> None:
    out = chunks(decoded(generated(" was"), line(response="", **{"done": True}), operation="text_completion"))
    head = {"id": "cmpl-r1", "object": "text_completion", "created": 1_787_300_000, "model": "m"}
    choice = {"index": 0, "text": " was", "logprobs": None, "finish_reason": None}
    assert out == [
        {**head, "choices": [choice]},
        {**head, "choices": [{**choice, "text": "", "finish_reason": "stop"}]},
    ]


def test_thinking_has_both_names_and_a_chunk_of_its_own() -> None:
    out = decoded(said("", thinking="hm"), said("a", thinking="m"), ended())
    assert deltas(out) == [
        {"role": "assistant", "reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning": "m", "reasoning_content": "m"},
        {"content": "a"},
        {},
    ]


def test_thinking_beside_a_completion_is_not_mixed_into_it() -> None:
    out = choices(decoded(generated("a", thinking="hm"), line(done=True), operation="text_completion"))
    assert [choice["text"] for choice in out] == ["", "a", ""]
    assert out[0]["reasoning_content"] == "hm"


def test_thinking_that_an_old_template_leaves_in_the_text_is_reasoning() -> None:
    told = deltas(decoded(said("<think>"), said("a</think>b"), ended()))
    assert [(delta.get("reasoning_content"), delta.get("content")) for delta in told[:2]] == [("a", None), (None, "b")]


def test_calls_get_an_index_and_an_id_each_and_their_arguments_as_text() -> None:
    out = decoded(said("", tool_calls=[{"id": "call_ab12cd34", **F}, G]), said("", tool_calls=[F]), ended())
    calls = [call for delta in deltas(out) for call in delta.get("tool_calls", ())]
    assert calls == [
        {"index": 0, "id": "call_ab12cd34", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"index": 1, "id": "call_r1_1", "type": "function", "function": {"name": "g", "arguments": '{"y":"é"}'}},
        {"index": 2, "id": "call_r1_2", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
    ]
    assert choices(out)[-1]["finish_reason"] == "tool_calls"


def test_two_calls_with_one_id_are_two_calls() -> None:
    out = decoded(said("", tool_calls=[{"id": "c", **F}, {"id": "c", **G}]), ended())
    assert [call["id"] for call in deltas(out)[0]["tool_calls"]] == ["c", "call_r1_1"]


@pytest.mark.parametrize(
    ("given_arguments", "text"),
    [({}, "{}"), (None, "{}"), ('{"a":1}', '{"a":1}'), ({"z": [None], "a": 2**70}, f'{{"z":[null],"a":{2**70}}}')],
)  # fmt: skip
def test_arguments_are_text_whichever_way_they_come(given_arguments: Any, text: str) -> None:
    out = decoded(said("", tool_calls=[{"function": {"name": "f", "arguments": given_arguments}}]), ended())
    told = deltas(out)[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(told) == json.loads(text)


def test_calls_in_the_last_line_are_not_lost() -> None:
    out = decoded(line(message={"role": "assistant", "content": "a", "tool_calls": [F]}, done=True, done_reason="stop"))
    assert [set(delta) for delta in deltas(out)] == [{"role", "content", "tool_calls"}, set()]
    assert choices(out)[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), (None, "stop"), ("", "stop")])
def test_reasons_to_finish(reason: str | None, finish: str) -> None:
    assert choices(decoded(said("a"), ended(done_reason=reason)))[-1]["finish_reason"] == finish


def test_calls_that_were_cut_by_the_limit_are_not_called_whole() -> None:
    assert choices(decoded(said("", tool_calls=[F]), ended(done_reason="length")))[-1]["finish_reason"] == "length"


@pytest.mark.parametrize("reason", ["load", "unload", "abort", "error"])
def test_reasons_that_are_no_answer(reason: str) -> None:
    stream = decoder()
    stream.feed(said("a") + ended(done_reason=reason))
    assert not stream.finished
    with pytest.raises(EngineFailed, match=reason) as caught:
        stream.close()
    assert caught.value.status == 502


def test_an_empty_answer_is_an_answer() -> None:
    out = decoded(said(""), ended(eval_count=None), usage=True)
    assert deltas(out) == [{"role": "assistant", "content": ""}]
    assert chunks(out)[-1]["usage"]["completion_tokens"] == 0


def test_lines_without_anything_in_them_give_no_chunk() -> None:
    stream = decoder()
    assert stream.feed(said("") + line(message=None, done=False) + b"\n\r\n" + b"{}\n") == b""
    assert stream.outputs == 0


# --- logprobs

TOKEN: Json = {"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": [{"token": "a", "logprob": -1.5}]}


def test_chats_have_logprobs_in_full() -> None:
    out = choices(decoded(said("é"), line(message={"content": "é"}, logprobs=[TOKEN], done=False), ended()))
    assert "logprobs" not in out[0]
    top = {"token": "a", "logprob": -1.5, "bytes": None}
    assert out[1]["logprobs"] == {"content": [{**TOKEN, "top_logprobs": [top]}]}


def test_logprobs_without_text_yet_are_not_lost_and_no_output() -> None:
    stream = decoder()
    out = stream.feed(line(message={"content": ""}, logprobs=[{"token": "x", "logprob": -1}], done=False))
    told: Json = {"token": "x", "logprob": -1, "bytes": None, "top_logprobs": []}
    assert choices(out)[0]["logprobs"] == {"content": [told]}
    assert stream.outputs == 0


def test_completions_have_logprobs_as_lists_that_know_where_they_are() -> None:
    out = choices(
        decoded(
            generated("é", logprobs=[TOKEN]),
            generated("bc", logprobs=[{"token": "b", "logprob": -1}, {"token": "c", "logprob": -2}]),
            line(done=True),
            operation="text_completion",
        )
    )
    assert out[0]["logprobs"] == {
        "tokens": ["é"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"a": -1.5}],
        "text_offset": [0],
    }
    assert out[1]["logprobs"]["text_offset"] == [1, 2]
    assert out[1]["logprobs"]["top_logprobs"] == [{}, {}]
    assert out[2]["logprobs"] is None


# --- counts


def test_usage_is_told_to_those_who_asked() -> None:
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks(decoded(CHAT)))
    last = chunks(decoded(CHAT, usage=True))[-1]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    assert (last["id"], last["object"], last["model"]) == ("chatcmpl-r1", "chat.completion.chunk", "m")


@pytest.mark.parametrize(
    ("told", "known", "usage"),
    [
        ({}, True, Usage(12, 9)),
        ({"prompt_eval_count": None}, True, Usage(30, 9, estimated=True)),
        ({"eval_count": None}, True, Usage(12, 2, estimated=True)),
        ({"eval_count": None, "prompt_eval_count": None}, False, Usage(30, 2, estimated=True)),
        ({"eval_count": -1, "prompt_eval_count": "12"}, False, Usage(30, 2, estimated=True)),
        ({"eval_count": 1e300, "prompt_eval_count": 2**60}, False, Usage(30, 2, estimated=True)),
    ],
)
def test_counts_that_the_engine_leaves_out_are_estimated_and_say_so(told: Json, known: bool, usage: Usage) -> None:
    stream = decoder(usage=True)
    out = chunks(stream.feed(said("a") + said("b") + ended(**told)))[-1]["usage"]
    counted = stream.tokens()
    assert counted._replace(prompt_tokens=0) == usage._replace(prompt_tokens=0)
    assert (counted.prompt_tokens == 12) is (usage.prompt_tokens == 12)
    assert stream.usage == (counted if known else None)
    assert out["total_tokens"] == counted.prompt_tokens + counted.completion_tokens
    assert out.get("weir_estimated", False) is usage.estimated


def test_tokens_are_estimated_until_the_engine_has_counted() -> None:
    stream = decoder()
    stream.feed(said("a") + said("b"))
    assert stream.usage is None
    assert stream.tokens().completion_tokens == 2
    assert stream.tokens().estimated


def test_outputs_are_counted_as_they_come() -> None:
    stream = decoder()
    counted: list[int] = []
    for piece in (said(""), said("", thinking="a"), said("b"), said("", tool_calls=[F]), ended()):
        stream.feed(piece)
        counted.append(stream.outputs)
    assert counted == [0, 1, 2, 3, 3]


def test_the_engines_own_times_are_kept() -> None:
    stream = decoder()
    stream.feed(said("a"))
    assert stream.timings is None
    stream.feed(ended())
    assert stream.timings == pytest.approx(EngineTimings(queue_s=0.09, load_s=0.002, prefill_s=0.04, decode_s=0.18))


@pytest.mark.parametrize(
    ("told", "timings"),
    [
        (
            {"total_duration": None, "load_duration": None, "prompt_eval_duration": None, "eval_duration": None},
            EngineTimings(),
        ),
        ({"total_duration": 1, "eval_duration": "x", "load_duration": -1}, EngineTimings(0.0, None, 0.04, None)),
    ],
)
def test_times_that_are_not_told_are_none(told: Json, timings: EngineTimings) -> None:
    stream = decoder()
    stream.feed(ended(**told))
    assert stream.timings == timings


# --- cuts


@pytest.mark.parametrize(("operation", "body"), [("chat", CHAT), ("text_completion", GENERATE)])
def test_cut_at_every_byte_it_is_the_same(operation: Operation, body: bytes) -> None:
    whole = decoded(body, usage=True, operation=operation)
    for at in range(len(body) + 1):
        assert decoded(body[:at], body[at:], usage=True, operation=operation) == whole
    assert decoded(*(body[at : at + 1] for at in range(len(body))), usage=True, operation=operation) == whole
    assert "北" in "".join(
        choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices(whole)
    )


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, len(CHAT)), max_size=12))
def test_how_the_network_cuts_the_bytes_does_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(CHAT)]
    assert decoded(*(CHAT[a:b] for a, b in pairwise(edges))) == decoded(CHAT)


def test_line_ends_may_be_crlf_and_the_last_may_be_missing() -> None:
    assert decoded(CHAT.replace(b"\n", b"\r\n")) == decoded(CHAT)
    assert decoded(CHAT[:-1]) == decoded(CHAT)


@pytest.mark.parametrize(("operation", "body"), [("chat", CHAT), ("text_completion", GENERATE)])
def test_a_stream_that_ends_before_its_end_is_never_whole(operation: Operation, body: bytes) -> None:
    whole = decoded(body, operation=operation)
    for at in range(len(body) - 1):
        stream = decoder(operation=operation)
        out = stream.feed(body[:at])
        assert whole.startswith(out)
        assert not stream.finished
        with pytest.raises(TruncatedStream):
            stream.close()


def test_what_comes_after_the_end_is_not_looked_at() -> None:
    stream = decoder()
    out = stream.feed(CHAT + b'{"error":"late"}\nnonsense\n')
    assert stream.finished
    assert out == decoded(CHAT)
    assert stream.feed(said("more")) == b""
    assert stream.close() == b""


# --- errors


def test_an_error_in_a_line_ends_the_stream_after_what_was_good() -> None:
    stream = decoder()
    out = stream.feed(said("a") + b'{"error":"llama runner process has terminated"}\n' + said("b") + ended())
    assert deltas(out) == [{"role": "assistant", "content": "a"}]
    assert not stream.finished
    with pytest.raises(EngineFailed, match="has terminated") as caught:
        stream.close()
    assert caught.value is stream.error
    assert caught.value.status == 502
    assert stream.feed(ended()) == b""


def test_an_error_that_is_json_in_a_text_is_read() -> None:
    stream = decoder()
    stream.feed(line(error=json.dumps({"error": {"code": 500, "message": "out of memory"}})))
    assert isinstance(stream.error, EngineFailed)
    assert stream.error.message == "out of memory"


def test_an_error_whose_line_has_no_end_is_read() -> None:
    stream = decoder()
    stream.feed(said("a") + b'{"error":"gone"}')
    with pytest.raises(EngineFailed, match="gone"):
        stream.close()


@pytest.mark.parametrize("bad", [b"nonsense", b"[]", b"1", b'"a"', b"null", b"{", b'data: {"a":1}', b"\xff", b"<html>"])
def test_a_line_that_is_none_breaks_the_stream_after_what_was_good(bad: bytes) -> None:
    stream = decoder()
    out = stream.feed(said("a") + bad + b"\n" + ended())
    assert deltas(out) == [{"role": "assistant", "content": "a"}]
    assert isinstance(stream.error, MalformedStream)
    with pytest.raises(MalformedStream):
        stream.close()


def test_a_line_without_an_end_is_bounded() -> None:
    stream = decoder()
    stream.feed(b"x" * (MAX_FRAME_BYTES + 1))
    assert isinstance(stream.error, MalformedStream)
    stream = decoder()
    stream.feed(said("a") + b"x" * MAX_FRAME_BYTES)
    with pytest.raises(TruncatedStream):
        stream.close()


def test_half_an_emoji_is_no_reason_to_lose_an_answer() -> None:
    out = decoded(b'{"message":{"content":"\\ud83d"},"done":false}\n', ended())
    assert deltas(out)[0]["content"] == "\ud83d"


LEAVES: tuple[Any, ...] = (
    None,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    True,
    "",
    "a",
    "\ud800",
    [],
    {},
    [{}],
    {"a": {}},
    [[1]],
)


class Generator:
    """Lines that are right but for a value here and there; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def mostly(self, right: Any) -> Any:
        if self._random.random() < 0.1:
            return self._random.choice(LEAVES)
        if isinstance(right, dict):
            items: Json = right  # pyright: ignore[reportUnknownVariableType]
            return {key: self.mostly(value) for key, value in items.items() if self._random.random() < 0.9}
        if isinstance(right, list):
            return [self.mostly(value) for value in right]  # pyright: ignore[reportUnknownVariableType]
        return right


@pytest.mark.parametrize("seed", range(200))
def test_json_of_any_shape_raises_only_adapter_errors(seed: int) -> None:
    some = Generator(seed)
    operations: tuple[Operation, ...] = ("chat", "text_completion")
    for operation in operations:
        stream = decoder(usage=True, operation=operation)
        for body in (
            CHAT,
            GENERATE,
            line(message={"content": "x"}, response="x", logprobs=[TOKEN], done=False),
            ended(),
        ):
            for right in body.splitlines():
                out = stream.feed(json.dumps(some.mostly(json.loads(right))).encode() + b"\n")
                assert chunks(out) or out == b""
        assert stream.tokens().completion_tokens >= 0
        with suppress(AdapterError):
            stream.close()


@pytest.mark.parametrize("depth", [200, 300, 900, 995, 1000, 1020, 100_000])
@pytest.mark.parametrize(
    "around",
    [
        b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":%b}}]},"done":false}\n',
        b'{"message":{"content":"a"},"logprobs":[{"token":"a","bytes":%b,"top_logprobs":%b}],"done":false}\n',
        b'{"message":{"content":%b,"thinking":%b},"error":%b}\n',
    ],
)
def test_json_nested_deeply_raises_only_adapter_errors(depth: int, around: bytes) -> None:
    nested = b"[" * depth + b"]" * depth
    stream = decoder()
    stream.feed(around.replace(b"%b", nested) + ended())
    assert stream.finished or stream.error is not None
