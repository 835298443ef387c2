"""TGI's streams, spelled as its page has them: whole, cut at every byte, and cut at random."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.tgi import TGI
from adapters.types import AdapterError, EngineFailed, MalformedStream, Operation, TruncatedStream, Usage
from tests.adapters.tgi_wire import (
    CLIENT_MODEL,
    COMMENT,
    DONE,
    USAGE,
    call,
    chunk,
    content,
    event,
    failed,
    text,
    tool_piece,
    usage_chunk,
)

Json = dict[str, Any]

PLAIN = (content("Hel"), content("lo"), content(' "you"\n'), content(" \u5317\U0001f600"), content("", "stop"))
CALL = (tool_piece("{", "get_weather"), tool_piece('"city":'), tool_piece(' "Oslo"}'))


class Decoded(NamedTuple):
    """What came out of a decoder."""

    out: bytes
    outputs: int
    usage: Usage | None
    finished: bool
    raised: AdapterError | None

    @property
    def chunks(self) -> list[Json]:
        *blocks, rest = self.out.split(b"\n\n")
        assert rest == b""
        assert all(block.startswith(b"data: {") and b"\n" not in block for block in blocks)
        return [json.loads(block[6:]) for block in blocks]

    @property
    def choices(self) -> list[Json]:
        return [chunk["choices"][0] for chunk in self.chunks if chunk["choices"]]

    @property
    def finish_reasons(self) -> list[Any]:
        return [choice["finish_reason"] for choice in self.choices]

    @property
    def told(self) -> tuple[Any, ...]:
        """All of it, in values that can be compared."""
        return (self.out, self.outputs, self.usage, self.finished, type(self.raised), str(self.raised))


def decode(
    pieces: Iterable[bytes], operation: Operation = "chat", *, wants_usage: bool = False, model: str = CLIENT_MODEL
) -> Decoded:
    body = {"model": model, "stream": True, "stream_options": {"include_usage": wants_usage}}
    decoder = TGI.stream_decoder(call(body, operation))
    out: list[bytes] = []
    raised: AdapterError | None = None
    try:
        for piece in pieces:
            out.append(decoder.feed(piece))
        out.append(decoder.close())
    except AdapterError as error:
        raised = error
    return Decoded(b"".join(out), decoder.outputs, decoder.usage, decoder.finished, raised)


def texts(choices: list[Json]) -> list[str]:
    return [choice["delta"].get("content", "") if "delta" in choice else choice["text"] for choice in choices]


# --- text


@pytest.mark.parametrize("model", [CLIENT_MODEL, "org/model"])
def test_chunks_go_to_the_client_with_an_id_and_the_clients_model(model: str) -> None:
    got = decode([*PLAIN, usage_chunk(), DONE], model=model)
    assert got.raised is None
    assert got.finished
    assert {(chunk["id"], chunk["model"]) for chunk in got.chunks} == {("chatcmpl-r1", model)}
    assert texts(got.choices) == ["Hel", "lo", ' "you"\n', " \u5317\U0001f600", ""]
    assert got.finish_reasons == [None, None, None, None, "stop"]
    assert got.outputs == 4
    assert got.usage == Usage(12, 3)


def test_the_role_is_said_once() -> None:
    got = decode([*PLAIN, DONE])
    assert [choice["delta"].get("role") for choice in got.choices] == ["assistant", None, None, None, None]


def test_all_other_fields_stay() -> None:
    logprobs = {"content": [{"token": "lo", "logprob": -0.25, "top_logprobs": [{"token": "x", "logprob": -1e-07}]}]}
    got = decode([content("Hel"), content("lo", logprobs=logprobs), content("", "stop"), DONE])
    assert got.chunks[1] == {
        "object": "chat.completion.chunk",
        "id": "chatcmpl-r1",
        "created": 1,
        "model": CLIENT_MODEL,
        "system_fingerprint": "3.3.7-sha-1234567",
        "choices": [{"index": 0, "delta": {"content": "lo"}, "logprobs": logprobs, "finish_reason": None}],
        "usage": None,
    }


def test_an_id_of_the_engines_own_stays() -> None:
    named = content("a").replace(b'"id":""', b'"id":"x"')
    assert [chunk["id"] for chunk in decode([named, content("", "stop"), DONE]).chunks] == ["x", "chatcmpl-r1"]


def test_text_that_looks_like_what_is_changed_stays() -> None:
    tricky = ['"id":""', '{"role":"assistant","id":""}', '"model":"org/model"', '"},"logprobs":null', "\\", '\\\\"']
    got = decode([content("a"), content("b"), *map(content, tricky), content("", "stop"), DONE])
    assert texts(got.choices) == ["a", "b", *tricky, ""]
    assert got.outputs == 2 + len(tricky)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_plain_chunks_are_passed_by_template_whatever_comes_in_one_read(size: int) -> None:
    words = [f"w{i}" for i in range(28)]
    frames = [*map(content, words), content("", "stop"), DONE]
    reads = [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]
    got = decode(reads)
    assert texts(got.choices) == [*words, ""]
    assert got.outputs == 28
    assert {json.dumps({**chunk, "choices": []}) for chunk in got.chunks} == {
        json.dumps({**got.chunks[0], "choices": []})
    }


def test_a_new_second_on_the_engines_clock_is_passed_on() -> None:
    created = [1, 1, 1, 2, 2, 2, 3]
    got = decode([*(content("x", created=second) for second in created), content("", "stop", created=3), DONE])
    assert [chunk["created"] for chunk in got.chunks] == [*created, 3]


def test_a_chunk_that_is_known_is_not_parsed_again() -> None:
    """Else a read of many tokens would cost many parses."""
    decoder = TGI.stream_decoder(call({"model": CLIENT_MODEL, "stream": True}))
    decoder.feed(b"".join(map(content, "abc")))
    assert decoder.plain is None, "no read may pass undecoded: it has no id"
    broken = content("d").replace(b'"usage":null', b'"usage":nul', 1)
    assert decoder.feed(content("d").replace(b'"d"', b'"\\q"')) != b""  # no JSON, yet like the chunks before it
    assert decoder.error is None
    decoder.feed(broken)
    assert isinstance(decoder.error, MalformedStream)


@pytest.mark.parametrize(("theirs", "ours"), [("stop_sequence", "stop"), ("eos_token", "stop"), ("length", "length")])
def test_finish_reasons_are_openais(theirs: str, ours: str) -> None:
    got = decode([content("a"), content("b", theirs), DONE])
    assert got.finish_reasons == [None, ours]
    assert got.finished
    assert texts(got.choices) == ["a", "b"]


def test_usage_is_given_only_if_asked_for() -> None:
    assert all(chunk["choices"] for chunk in decode([*PLAIN, usage_chunk(), DONE]).chunks)
    last = decode([*PLAIN, usage_chunk(), DONE], wants_usage=True).chunks[-1]
    assert (last["choices"], last["usage"], last["id"]) == ([], USAGE, "chatcmpl-r1")


def test_comments_are_no_output() -> None:
    quiet = decode([*PLAIN, usage_chunk(), DONE])
    talking = decode([COMMENT, *(frame + COMMENT for frame in PLAIN), COMMENT, usage_chunk(), COMMENT, DONE])
    assert talking.told == quiet.told
    assert decode([COMMENT, COMMENT]).outputs == 0


def test_versions_without_a_space_after_data_are_read_too() -> None:
    frames = [*PLAIN, usage_chunk(), DONE]
    assert decode([frame.replace(b"data: ", b"data:", 1) for frame in frames]).told == decode(frames).told


# --- tool calls


def test_a_tool_call_has_its_end_made_up_and_its_id_said_once() -> None:
    got = decode([*CALL, usage_chunk(), DONE], wants_usage=True)
    assert got.raised is None
    assert got.finished
    *pieces, end = got.choices
    assert [piece["delta"] for piece in pieces] == [
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_r1_0",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": "{"},
                }
            ],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '"city":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ' "Oslo"}'}}]},
    ]
    assert (end["delta"], end["finish_reason"]) == ({}, "tool_calls")
    assert got.chunks[-1]["usage"] == USAGE
    assert {(chunk["id"], chunk["model"]) for chunk in got.chunks} == {("chatcmpl-r1", CLIENT_MODEL)}
    assert got.outputs == 3


def test_a_tool_call_without_a_usage_chunk_ends_as_well() -> None:
    assert decode([*CALL, DONE]).finish_reasons == [None, None, None, "tool_calls"]


def test_a_tool_call_that_says_its_end_gets_no_second_one() -> None:
    got = decode([*CALL[:2], tool_piece(' "Oslo"}', finish_reason="stop"), DONE])
    assert got.finish_reasons == [None, None, "tool_calls"]


def test_a_tool_call_that_the_limit_cut_says_so() -> None:
    got = decode([*CALL[:1], tool_piece('"ci', finish_reason="length"), usage_chunk(), DONE])
    assert got.finish_reasons == [None, "length"]
    assert got.finished


def test_a_limit_hit_before_the_function_was_known_is_an_answer_without_output() -> None:
    got = decode([usage_chunk(), DONE], wants_usage=True)
    assert got.finished
    assert got.finish_reasons == ["length"]
    assert (got.outputs, got.usage) == (0, Usage(12, 3))
    assert got.chunks[-1]["usage"] == USAGE


@pytest.mark.parametrize("frames", [[*CALL[:2], DONE], [*CALL[:2], usage_chunk(), DONE], [*CALL], [DONE]])
def test_a_call_that_is_cut_is_no_answer(frames: list[bytes]) -> None:
    got = decode(frames)
    assert not got.finished
    assert isinstance(got.raised, TruncatedStream)


def test_a_call_followed_by_an_error_is_no_answer() -> None:
    got = decode([*CALL, failed("Request failed during generation: x"), DONE])
    assert not got.finished
    assert isinstance(got.raised, EngineFailed)


def test_a_call_without_end_is_refused() -> None:
    piece = tool_piece("x" * 1_000_000)
    got = decode([CALL[0], *[piece] * 20, DONE])
    assert isinstance(got.raised, MalformedStream)


# --- text completions


def test_a_completions_unset_finish_reasons_and_its_end_token_are_put_right() -> None:
    got = decode([text(" was"), text(" it"), text("</s>", "eos_token", usage=USAGE), DONE], "text_completion")
    assert texts(got.choices) == [" was", " it", ""]
    assert got.finish_reasons == [None, None, "stop"]
    assert {(chunk["id"], chunk["model"]) for chunk in got.chunks} == {("cmpl-r1", CLIENT_MODEL)}
    assert all("usage" not in chunk for chunk in got.chunks)
    assert got.finished
    assert got.usage == Usage(12, 3)


@pytest.mark.parametrize(("theirs", "ours"), [("stop_sequence", "stop"), ("length", "length")])
def test_other_ends_of_a_completion_keep_their_text(theirs: str, ours: str) -> None:
    got = decode([text(" was"), text(" it", theirs, usage=USAGE), DONE], "text_completion")
    assert texts(got.choices) == [" was", " it"]
    assert got.finish_reasons == [None, ours]


def test_usage_of_several_prompts_adds_up() -> None:
    frames = [text("a"), text("b", index=1), text("", "eos_token", 1, USAGE), text("c"), text("d", "length", 0, USAGE)]
    got = decode([*frames, DONE], "text_completion", wants_usage=True)
    assert [(choice["index"], choice["text"]) for choice in got.choices] == [
        (0, "a"),
        (1, "b"),
        (1, ""),
        (0, "c"),
        (0, "d"),
    ]
    assert got.finished
    assert got.usage == Usage(24, 6)
    assert got.chunks[-1]["usage"] == {"prompt_tokens": 24, "completion_tokens": 6, "total_tokens": 30}


def test_a_prompt_that_is_not_finished_makes_the_answer_no_answer() -> None:
    got = decode([text("a"), text("b", index=1), text("", "eos_token", 1, USAGE), DONE], "text_completion")
    assert not got.finished
    assert isinstance(got.raised, TruncatedStream)


def test_a_completion_gets_no_end_made_up() -> None:
    got = decode([text("a"), DONE], "text_completion")
    assert isinstance(got.raised, TruncatedStream)


# --- errors in a 200

ERRORS = [
    ("Model is overloaded", 429, "overloaded"),
    ("Input validation error: `inputs` must have less than 1024 tokens. Given: 4096", 400, "validation"),
    ("Template error: syntax error: Conversation roles must alternate", 400, "template_error"),
    ("Missing template vatiable: tools", 400, "missing_template_variable"),
    ("Tool error: Tool with name f not found", 400, "tool_error"),
    ("Request failed during generation: CUDA out of memory", 502, "generation"),
    ("Incomplete generation", 502, "incomplete_generation"),
    ("Incomplete generation stream", 502, "incomplete_generation_stream"),
    ("Stream event serialization error", 502, None),
    ("something new", 502, None),
]


@pytest.mark.parametrize("operation", ["chat", "text_completion"])
@pytest.mark.parametrize(("message", "status", "kind"), ERRORS)
def test_an_error_event_is_told_by_its_message_whatever_its_status_says(
    operation: Operation, message: str, status: int, kind: str | None
) -> None:
    got = decode([COMMENT, failed(message), DONE], operation)
    assert isinstance(got.raised, EngineFailed)
    assert (got.raised.status, got.raised.type, got.raised.message) == (status, kind, message)
    assert not got.finished
    assert got.out == b""


@pytest.mark.parametrize("kind", ["overloaded", "validation", "generation", "incomplete_generation"])
def test_an_error_event_of_the_native_shape_is_told_by_its_kind(kind: str) -> None:
    status = next(status for _, status, known in ERRORS if known == kind)
    got = decode([content("a"), event({"error": "some text", "error_type": kind})])
    assert isinstance(got.raised, EngineFailed)
    assert (got.raised.status, got.raised.type, got.raised.message) == (status, kind, "some text")
    assert texts(got.choices) == ["a"]


def test_nothing_comes_after_an_error() -> None:
    for sent in ([*PLAIN[:2], failed("Incomplete generation"), content("x"), DONE], [failed("x"), *PLAIN, DONE]):
        got = decode(sent)
        assert not got.finished
        assert isinstance(got.raised, EngineFailed)
        assert "x" not in texts(got.choices)


# --- what no engine should send

LEAVES: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "x", [], {}, [None], [[]], [{}], {"a": 1}, "\ud800")


def odd_chunks() -> list[Json]:
    delta: Json = {"role": "assistant", "content": "x", "tool_calls": [{"index": 0, "id": "0", "function": {}}]}
    choice: Json = {"index": 0, "delta": delta, "text": "x", "finish_reason": "stop"}
    odd: list[Json] = []
    for leaf in LEAVES:
        odd += [{"id": leaf, "choices": leaf, "usage": leaf}, {"error": leaf}, {"choices": [leaf], "usage": USAGE}]
        odd += [{"choices": [{**choice, key: leaf}]} for key in choice]
        odd += [{"choices": [{**choice, "delta": {**delta, key: leaf}}]} for key in delta]
        for key in ("index", "id", "type", "function"):
            odd.append({"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}, key: leaf}]}}]})
        odd += [{"choices": [{"delta": {"tool_calls": [{"function": {key: leaf}}]}}]} for key in ("name", "arguments")]
    return odd


@pytest.mark.parametrize("operation", ["chat", "text_completion", "embeddings", "other"])
def test_json_of_any_shape_raises_only_adapter_errors(operation: Operation) -> None:
    for odd in odd_chunks():
        frame = b"data: " + json.dumps(odd).encode() + b"\n\n"
        decode([frame, content("a"), frame, usage_chunk(), DONE], operation, wants_usage=True)


@pytest.mark.parametrize("payload", [b"{", b"3", b"[]", b'"x"', b"\xff"])
def test_an_event_that_is_no_object_is_malformed(payload: bytes) -> None:
    got = decode([content("a"), b"data: " + payload + b"\n\n", content("b"), DONE])
    assert isinstance(got.raised, MalformedStream)
    assert texts(got.choices) == ["a"]


# --- cuts

BODIES: dict[str, tuple[Operation, bytes]] = {
    "text": ("chat", b"".join([COMMENT, *PLAIN, usage_chunk(), COMMENT, DONE])),
    "call": ("chat", b"".join([*CALL, COMMENT, usage_chunk(), DONE])),
    "nothing": ("chat", usage_chunk() + DONE),
    "completion": ("text_completion", b"".join(map(text, "abcd")) + text("</s>", "eos_token", usage=USAGE) + DONE),
    "old": ("chat", b"".join([*PLAIN, DONE]).replace(b"data: ", b"data:")),
    "error": ("chat", b"".join([*PLAIN[:2], failed("Incomplete generation"), DONE])),
    "native error": ("chat", event({"error": "Model is overloaded", "error_type": "overloaded"})),
    "two choices": ("chat", chunk([{"index": i, "delta": {"content": "x"}, "finish_reason": "stop"} for i in (0, 1)])),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_stream_cut_in_two_at_any_byte_comes_out_the_same(name: str) -> None:
    operation, body = BODIES[name]
    whole = decode([body], operation, wants_usage=True).told
    for at in range(len(body) + 1):
        assert decode([body[:at], body[at:]], operation, wants_usage=True).told == whole


@pytest.mark.parametrize("name", BODIES)
def test_a_stream_fed_byte_by_byte_comes_out_the_same(name: str) -> None:
    operation, body = BODIES[name]
    pieces = [body[at : at + 1] for at in range(len(body))]
    assert decode(pieces, operation, wants_usage=True).told == decode([body], operation, wants_usage=True).told


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(BODIES)), cuts=st.lists(st.integers(0, 2500), max_size=12))
def test_a_stream_cut_at_random_comes_out_the_same(name: str, cuts: list[int]) -> None:
    operation, body = BODIES[name]
    edges = [0, *sorted(min(at, len(body)) for at in cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    assert decode(pieces, operation, wants_usage=True).told == decode([body], operation, wants_usage=True).told


@pytest.mark.parametrize("name", ["text", "call", "completion", "old"])
def test_a_stream_that_ends_before_its_end_marker_is_no_answer(name: str) -> None:
    operation, body = BODIES[name]
    for length in range(body.index(b"[DONE]") + len(b"[DONE]")):
        got = decode([body[:length]], operation)
        assert not got.finished
        assert isinstance(got.raised, TruncatedStream)
