"""What engines leave out of chunks and answers, or repeat, and clients look for: the official client is the judge."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from adapters import ADAPTERS
from adapters.types import GatewayRequest, Operation
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]
OPENAI_SPEAKERS = ["openai", "vllm", "sglang", "llamacpp", "tgi", "lightllm", "lmdeploy", "trtllm"]
every_speaker = pytest.mark.parametrize("name", OPENAI_SPEAKERS)
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def request(operation: Operation = "chat", *, stream: bool = True) -> GatewayRequest:
    body: Json = {"model": "m", "stream": stream, "messages": [], "prompt": "hi"}
    return GatewayRequest("r1", operation, "/v1/x", "POST", "m", stream, json.dumps(body).encode(), body, 1)


def chunk(delta: Json | None, finish: str | None = None, index: int = 0, **more: Any) -> Json:
    top = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "engine-m"}
    return {**top, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def piece(index: int = 0, **call: Any) -> Json:
    return {"tool_calls": [{"index": index, **call}]}


def streamed(name: str, *chunks: Json) -> list[Json]:
    """What the client reads in place of these chunks, whichever way they are cut."""
    wire = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"
    outs: list[bytes] = []
    for size in (len(wire), 1):
        decoder = ADAPTERS[name].stream_decoder(request())
        fed = [decoder.feed(wire[at : at + size]) for at in range(0, len(wire), size)]
        outs.append(b"".join(fed) + decoder.close())
        assert decoder.finished
    assert outs[0] == outs[1]
    return [json.loads(event.removeprefix(b"data: ")) for event in outs[0].split(b"\n\n")[:-1]]


def put_together(chunks: list[Json]) -> list[Json]:
    """The choices that the official client makes of them."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for each in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(each))
    choices: list[Json] = state.get_final_completion().model_dump()["choices"]
    return choices


def calls_of(choice: Json) -> list[tuple[str, str, str, str]]:
    """Id, type, name and arguments of each call."""
    calls: list[Json] = choice["message"]["tool_calls"]
    return [(call["id"], call["type"], call["function"]["name"], call["function"]["arguments"]) for call in calls]


def whole(name: str, answer: Json, operation: Operation = "chat") -> Json:
    asked = request(operation, stream=False)
    reader = ADAPTERS[name].answer_reader(asked, answer_head("application/json"), streamed=False)
    reader.feed(json.dumps(answer).encode())
    read: Json = json.loads(reader.close().body)
    return read


def answer(message: Json, finish: str = "stop", **more: Any) -> Json:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "e",
        "choices": choices,
        "usage": USAGE,
        **more,
    }


@every_speaker
@pytest.mark.parametrize("call_id", [{}, {"id": None}, {"id": ""}], ids=str)
def test_streamed_calls_without_an_id_or_a_type_get_them(name: str, call_id: Json) -> None:
    chunks = streamed(
        name,
        chunk({"role": "assistant", "content": None}),
        chunk(piece(0, **call_id, function={"name": "f", "arguments": '{"a"'})),
        chunk(piece(0, **call_id, function={"arguments": ": 1}"})),
        chunk(piece(1, **call_id, function={"name": "g", "arguments": "{}"})),
        chunk({}, "stop"),
    )
    (choice,) = put_together(chunks)
    assert calls_of(choice) == [("call_r1_0", "function", "f", '{"a": 1}'), ("call_r1_1", "function", "g", "{}")]
    assert choice["finish_reason"] == "tool_calls"


def test_an_id_that_comes_late_does_not_join_the_one_that_was_given() -> None:
    chunks = streamed(
        "openai",
        chunk(piece(function={"name": "f", "arguments": ""})),
        chunk(piece(id="late", function={"arguments": "{}"})),
        chunk({}, "tool_calls"),
    )
    (choice,) = put_together(chunks)
    assert calls_of(choice) == [("call_r1_0", "function", "f", "{}")]


def test_calls_of_several_choices_have_ids_of_their_own() -> None:
    chunks = streamed(
        "openai",
        *(chunk(piece(function={"name": "f", "arguments": "{}"}), index=index) for index in (0, 1)),
        *(chunk({}, "tool_calls", index) for index in (0, 1)),
    )
    ids = [[call[0] for call in calls_of(choice)] for choice in put_together(chunks)]
    assert ids == [["call_r1_0"], ["call_r1_1_0"]]


@every_speaker
def test_what_is_repeated_in_every_piece_is_said_once(name: str) -> None:
    repeated: Json = {"id": "x", "type": "function"}
    chunks = streamed(
        name,
        chunk({"role": "assistant", **piece(**repeated, function={"name": "f", "arguments": "{"})}),
        chunk({"role": "assistant", **piece(**repeated, function={"name": "f", "arguments": "}"})}),
        chunk({"role": "assistant", "content": ""}, "tool_calls"),
    )
    (choice,) = put_together(chunks)
    assert choice["message"]["role"] == "assistant"
    assert calls_of(choice) == [("call_r1_0" if name == "tgi" else "x", "function", "f", "{}")]


@every_speaker
def test_a_role_in_every_delta_is_said_once_for_each_choice(name: str) -> None:
    texts = [
        chunk({"role": "assistant", "content": text}, index=at) for text in ("a", "b", '"c"', "d") for at in (0, 1)
    ]
    chunks = streamed(name, *texts, chunk({}, "stop"), chunk({}, "stop", 1))
    for choice in put_together(chunks):
        assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", 'ab"c"d')


@every_speaker
def test_arguments_given_as_an_object_come_as_text(name: str) -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    chunks = streamed(name, chunk(piece(id="x", function=function)), chunk({}, "tool_calls"))
    read = [chunks[0]["choices"][0]["delta"], whole(name, answer({"tool_calls": [{"id": "x", "function": function}]}))]
    read[1] = read[1]["choices"][0]["message"]
    assert [message["tool_calls"][0]["function"]["arguments"] for message in read] == ['{"a":1}'] * 2


@every_speaker
def test_whole_calls_without_an_id_of_their_own_get_one(name: str) -> None:
    calls = [{"id": call_id, "function": {"name": "f", "arguments": "{}"}} for call_id in ("", None, "x", "x")]
    read = whole(name, answer({"content": None, "tool_calls": calls}))
    made = calls_of(ChatCompletion.model_validate(read).model_dump()["choices"][0])
    ids = [call[0] for call in made]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert {call[1] for call in made} == {"function"}


@every_speaker
@pytest.mark.parametrize("left_out", [{"id": None}, {"id": ""}, {"model": None}], ids=str)
def test_an_answer_without_an_id_or_a_model_gets_them(name: str, left_out: Json) -> None:
    chunks = streamed(
        name, *({**chunk({"content": text}), **left_out} for text in "abc"), chunk({}, "stop", **left_out)
    )
    (ident,) = {each["id"] for each in chunks}
    assert ident == ("chatcmpl-r1" if "id" in left_out else "c1")
    assert {each["model"] for each in chunks} == {"m"}
    assert put_together(chunks)[0]["message"]["content"] == "abc"
    read = whole(name, answer({"content": "a"}, **left_out))
    assert (read["id"], read["model"]) == (ident, "m")
    text: Json = {**answer({}), **left_out, "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
    assert whole(name, text, "text_completion")["id"] == ident.replace("chatcmpl", "cmpl")


@every_speaker
def test_a_delta_of_null_is_an_empty_one(name: str) -> None:
    chunks = streamed(name, chunk({"content": "a"}), chunk(None, "stop"))
    assert chunks[-1]["choices"][0]["delta"] == {}


@pytest.mark.parametrize(("delta", "content"), [({}, ""), ({"reasoning_content": "hm"}, ""), (piece(id="x"), None)])
def test_an_answer_of_no_text_has_the_content_that_llamacpp_gives_it_whole(delta: Json, content: str | None) -> None:
    asked = request(stream=False)
    reader = ADAPTERS["llamacpp"].answer_reader(asked, answer_head("text/event-stream"), streamed=True)
    for each in (chunk({"role": "assistant", "content": None}), chunk(delta), chunk({}, "stop")):
        reader.feed(b"data: %b\n\n" % json.dumps(each).encode())
    reader.feed(b"data: [DONE]\n\n")
    assert json.loads(reader.close().body)["choices"][0]["message"]["content"] == content
