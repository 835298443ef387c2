"""Going on with an answer: what an engine is asked, and how two parts become one stream, cut anywhere."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters import ADAPTERS
from adapters.continuation import (
    Counted,
    Rest,
    count_in,
    count_request,
    cut_in_stop,
    goes_on,
    is_counted,
    rest,
    said_again,
    unfit,
)
from adapters.joined_stream import JoinedStream, NotJoined
from adapters.openai_stream import OpenAiStream
from adapters.said import FINISHED, MOST_BYTES, TOO_LONG, Said
from adapters.types import AdapterError, GatewayRequest, Operation, Usage
from tests.adapters.recorded import Recording, recordings

HI: list[Any] = [{"role": "user", "content": "hi"}]
PROMPT_TOKENS = 5


def asking(operation: Operation = "chat", **changes: object) -> GatewayRequest:
    said: dict[str, Any] = {"messages": HI} if operation == "chat" else {"prompt": "hi"}
    body: dict[str, Any] = {"model": "m", "stream": True, **said, **changes}
    raw = json.dumps(body).encode()
    return GatewayRequest("r", operation, "/v1/x", "POST", "m", True, raw, body, 0)


def read(out: bytes) -> tuple[str, list[dict[str, Any]]]:
    """The text of the client's frames, and all of them."""
    chunks = [json.loads(block[6:]) for block in out.split(b"\n\n") if block]
    choices: list[dict[str, Any]] = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join((c["delta"].get("content") if "delta" in c else c["text"]) or "" for c in choices), chunks


def listening(engine: str, request: GatewayRequest) -> tuple[OpenAiStream, Said]:
    decoder = ADAPTERS[engine].stream_decoder(request)
    assert isinstance(decoder, OpenAiStream)
    decoder.said = Said()
    return decoder, decoder.said


def rest_of(engine: str, request: GatewayRequest, pieces: list[str], tokens: int | None = None) -> Rest:
    made = rest(engine, request, pieces, None if tokens is None else Counted(tokens, tokens))
    assert isinstance(made, Rest)
    return made


# --- one stream made of two


def body_of(pieces: list[str], *, chat: bool, known: int = 0, name: str = "x", spaced: bool = False) -> bytes:
    """A whole stream of an engine."""
    separators = (", ", ": ") if spaced else (",", ":")

    def event(**more: object) -> bytes:
        kind = "chat.completion.chunk" if chat else "text_completion"
        chunk = {"id": name, "object": kind, "created": len(name), "model": "engine's", **more}
        return b"data: %b\n\n" % json.dumps(chunk, ensure_ascii=False, separators=separators).encode()

    def choice(text: str, finish: str | None = None) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
        return {"index": 0, **said, "finish_reason": finish}

    role = {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
    counts = {"prompt_tokens": PROMPT_TOKENS + known, "completion_tokens": len(pieces)}
    events = [event(choices=[role])] if chat else []
    events += [event(choices=[choice(piece)]) for piece in pieces]
    return b"".join(
        [*events, event(choices=[choice("", "stop")]), event(choices=[], usage=counts), b"data: [DONE]\n\n"]
    )


def fed(decoder: OpenAiStream | JoinedStream, body: bytes, edges: list[int]) -> bytes:
    marks = [0, *sorted({edge for edge in edges if edge < len(body)}), len(body)]
    return b"".join([decoder.feed(body[start:stop]) for start, stop in pairwise(marks)])


PIECES = st.lists(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=12)
EDGES = st.lists(st.integers(0, 4000), max_size=20)


@given(PIECES, st.booleans(), st.booleans(), st.integers(0, 4000), EDGES, EDGES)
@example(['"', "\\", "\n", "\u2028", "🎉"], True, False, 700, [], [])
def test_cut_at_any_byte_two_parts_read_as_the_whole(
    pieces: list[str], chat: bool, spaced: bool, cut: int, edges: list[int], more_edges: list[int]
) -> None:
    request = asking("chat" if chat else "text_completion", stream_options={"include_usage": True})
    whole = body_of(pieces, chat=chat, spaced=spaced)
    until_finish = whole[: whole.index(b"stop")]
    decoder, said = listening("llamacpp", request)
    first = fed(decoder, until_finish[:cut], edges)
    given_text, given_chunks = read(first)
    with pytest.raises(AdapterError):
        decoder.close()
    told = said.pieces()
    assert told is not None
    assert "".join(told) == given_text
    assert said.unfit is None
    if not told:
        return
    first_text = "".join(told)
    known = next(n for n in range(len(pieces) + 1) if "".join(pieces[:n]) == first_text)
    made = rest_of("llamacpp", request, told, known)
    joined = JoinedStream(OpenAiStream("m", wants_usage=True, sends_done=True), made, said)
    body = body_of(pieces[known:], chat=chat, known=known, name="other", spaced=spaced)
    second = fed(joined, body, more_edges) + joined.close()
    text, chunks = read(second)
    assert given_text + text == "".join(pieces)
    assert joined.finished
    assert joined.outputs == len(pieces) - known
    assert joined.joined_tokens()[:2] == (PROMPT_TOKENS, len(pieces))
    assert chunks[-1]["usage"]["total_tokens"] == PROMPT_TOKENS + len(pieces)
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*given_chunks, *chunks]} == {("x", 1, "m")}
    assert "".join(said.pieces() or ()) == "".join(pieces)


@pytest.mark.parametrize("recording", recordings("llamacpp", "vllm", "vllm-interval4"), ids=lambda r: r.id)
def test_what_is_kept_of_a_recorded_stream_is_what_the_client_read(recording: Recording) -> None:
    if "event-stream" not in recording.content_type or recording.path not in _PATHS:
        return
    request = asking(_PATHS[recording.path], **recording.request)
    engine = recording.folder.partition("-")[0]
    for cut in range(1, len(recording.body), 97):
        decoder, said = listening(engine, request)
        text, _ = read(decoder.feed(recording.body[:cut]))
        assert said.unfit is not None or "".join(said.pieces() or ()) == text


_PATHS: dict[str, Operation] = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
def test_a_recorded_continuation_reads_as_the_rest(engine: str) -> None:
    (recording,) = [r for r in recordings(engine) if r.name == "chat_prefill_flags_stream"]
    *messages, held = recording.request["messages"]
    limit = recording.request["max_tokens"]
    request = asking(messages=messages, max_tokens=limit + 3, temperature=recording.request.get("temperature"))
    made = rest_of(engine, request, [held["content"]], 3)
    asked = json.loads(made.request.raw)
    for key in ("messages", "max_tokens", "add_generation_prompt", "continue_final_message"):
        assert asked[key] == recording.request[key]
    said = Said()
    said.head = {"id": "first", "created": 1}
    joined = JoinedStream(OpenAiStream("m", wants_usage=False, sends_done=True), made, said)
    text, chunks = read(joined.feed(recording.body) + joined.close())
    plain = ADAPTERS[engine].stream_decoder(request)
    assert text == read(plain.feed(recording.body) + plain.close())[0]
    assert {chunk["id"] for chunk in chunks} == {"first"}
    assert not any("role" in choice["delta"] for chunk in chunks for choice in chunk["choices"])


# --- odd ways to go on


def joined_with(made: Rest, pieces: list[str]) -> tuple[JoinedStream, str]:
    joined = JoinedStream(OpenAiStream("m", wants_usage=False), made, Said())
    return joined, read(joined.feed(body_of(pieces, chat=True)))[0]


def test_an_engine_that_repeats_the_message_is_cut() -> None:
    made = rest_of("llamacpp", asking(), ["Once upon a", " time there was"])
    assert joined_with(made, ["Once upon a time there was a", " dragon"])[1] == " a dragon"
    assert joined_with(made, [" a", " dragon"])[1] == " a dragon"


def test_a_short_message_is_never_taken_for_repeated() -> None:
    assert joined_with(rest_of("llamacpp", asking(), ["ha"]), ["ha", "ha"])[1] == "haha"


@pytest.mark.parametrize("pieces", [["\n", "\n", "b"], ["\n\nb"], ["\n", "\nb"]])
def test_white_space_that_comes_again_is_dropped(pieces: list[str]) -> None:
    made = rest_of("vllm", asking(), ["a", "\n\n"])
    assert json.loads(made.request.raw)["messages"][-1]["content"] == "a"
    assert made.counted.given == 1
    assert joined_with(made, pieces)[1] == "b"


def test_nothing_but_white_space_is_begun_anew() -> None:
    made = rest_of("vllm", asking(max_tokens=9), ["\n"])
    assert json.loads(made.request.raw) == {**asking().body, "max_tokens": 9}
    assert made.counted.given == 0


def test_other_white_space_is_an_error() -> None:
    joined, text = joined_with(rest_of("vllm", asking(), ["a", "\n\n"]), [" b"])
    assert text == ""
    assert isinstance(joined.error, NotJoined)
    assert not joined.finished
    assert joined.feed(b"data: {}\n\n") == b""


def test_reasoning_is_an_error() -> None:
    joined = JoinedStream(OpenAiStream("m", wants_usage=False), rest_of("vllm", asking(), ["a"]), Said())
    joined.feed(b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"b"}}]}\n\n')
    assert isinstance(joined.error, NotJoined)


def test_an_answer_at_its_limit_gets_its_end_alone() -> None:
    made = rest_of("llamacpp", asking(max_tokens=2), ["a", "b"])
    assert made.ended
    joined, text = joined_with(made, ["c"])
    assert text == ""
    assert joined.joined_tokens() == Usage(PROMPT_TOKENS - 2, 2, estimated=True)


def test_where_no_engine_counted_the_prompt_is_estimated_as_that_of_any_request() -> None:
    request = asking()
    made = rest_of("llamacpp", request, ["a"])
    estimate = made.request.prompt_estimate_tokens
    assert estimate > request.prompt_estimate_tokens + 1
    joined = JoinedStream(OpenAiStream("m", wants_usage=False, prompt_tokens=estimate), made, Said())
    joined.feed(b'data: {"choices":[{"index":0,"delta":{"content":"b"}}]}\n\n')
    assert joined.joined_tokens() == Usage(request.prompt_estimate_tokens, 2, estimated=True)


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_tokens": 10}, {"max_tokens": 7}),
        ({"max_completion_tokens": 10, "min_tokens": 2}, {"max_completion_tokens": 7, "min_tokens": 0}),
        ({"max_tokens": -1}, {"max_tokens": -1}),
        ({"max_tokens": None}, {"max_tokens": None}),
    ],
)
def test_limits_are_reduced_by_what_was_given(limits: dict[str, Any], left: dict[str, Any]) -> None:
    asked = json.loads(rest_of("llamacpp", asking(**limits), ["a"], 3).request.raw)
    assert {key: asked.get(key) for key in left} == left


def test_a_long_body_is_changed_whole() -> None:
    long = "x" * 100_000
    request = asking(messages=[{"role": "user", "content": long}])
    assert json.loads(rest_of("sglang", request, ["a"]).request.raw)["messages"] == [
        {"role": "user", "content": long},
        {"role": "assistant", "content": "a"},
    ]


def test_a_text_completion_goes_on_from_prompt_and_text() -> None:
    asked = json.loads(rest_of("lightllm", asking("text_completion"), ["a", " "]).request.raw)
    assert asked["prompt"] == "hia "


# --- what cannot be exact


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 2},
        {"logprobs": True},
        {"tools": [{"type": "function"}]},
        {"response_format": {"type": "json_object"}},
        {"presence_penalty": 0.1},
        {"seed": 1},
        {"seed": 1, "temperature": 0.5},
        {"guided_json": {}},
        {"stream_options": {"continuous_usage_stats": True}},
        {"messages": [*HI, {"role": "assistant", "content": "a"}]},
        {"messages": []},
    ],
)
def test_a_request_that_could_come_out_otherwise_is_unfit(changes: dict[str, Any]) -> None:
    assert unfit(asking(**changes)) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n": 1, "logprobs": False, "tools": [], "response_format": {"type": "text"}, "presence_penalty": 0.0},
        {"temperature": 0.7, "top_p": 0.9, "stop": ["x"], "max_tokens": 5, "user": "u"},
        {"seed": 1, "temperature": 0},
        {"guided_json": None},
    ],
)
def test_a_plain_request_is_fit(changes: dict[str, Any]) -> None:
    assert unfit(asking(**changes)) is None


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "min_tokens"])
@pytest.mark.parametrize("value", [6.0, "6", True])
def test_a_number_of_tokens_that_cannot_be_made_smaller_is_unfit(key: str, value: object) -> None:
    changes: dict[str, Any] = {key: value}
    assert unfit(asking(**changes)) == f"the request's {key} is no whole number"


def test_a_prompt_of_token_ids_is_unfit() -> None:
    assert unfit(asking("text_completion", prompt=[1, 2])) is not None


def test_the_beginning_of_a_stop_string_is_not_gone_on_from() -> None:
    assert cut_in_stop(asking(stop="END"), ["a", " E"])
    assert cut_in_stop(asking(stop=["x", "END"]), ["a", " E", "N"])
    assert not cut_in_stop(asking(stop=["END"]), ["a", " E "])


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"choices": [{"index": 1, "delta": {"content": "a"}}]}, "several choices"),
    ({"choices": [{"index": 0, "delta": {"tool_calls": [{}]}}]}, "a tool call"),
    ({"choices": [{"index": 0, "delta": {"reasoning": "a"}}]}, "reasoning"),
    ({"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": []}}]}, "log-probabilities"),
    ({"choices": [{"index": 0, "delta": {"content": ["a"]}}]}, "no text"),
    ({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, FINISHED),
]


@pytest.mark.parametrize(("chunk", "why"), UNFIT)
def test_what_was_said_may_be_unfit(chunk: dict[str, Any], why: str) -> None:
    said = Said()
    said.take(chunk)
    assert said.unfit is not None
    assert why in said.unfit


def test_so_much_is_kept_and_no_more() -> None:
    said = Said()
    said.take({"choices": [{"index": 0, "text": "x" * MOST_BYTES}]})
    assert said.unfit == TOO_LONG


def test_what_grew_too_long_is_not_gone_on_with_when_the_last_of_it_is_taken_back() -> None:
    """All of it was given up then: an answer begun anew would be said twice."""
    request = asking()
    _, said = listening("llamacpp", request)
    said.take({"choices": [{"index": 0, "delta": {"content": "x" * (MOST_BYTES - 9)}}]})
    joined = JoinedStream(listening("llamacpp", request)[0], rest_of("llamacpp", request, ["x"]), said)
    joined.feed(body_of(["y" * 9], chat=True))
    assert not said.quoted
    joined.forget()
    assert said.unfit == TOO_LONG
    assert not said.quoted


def test_what_is_no_json_inside_plain_chunks_cannot_be_read() -> None:
    said = Said()
    said.quoted += b'\\x"'
    assert said.pieces() is None


# --- counting


def test_only_plain_ascii_without_stop_strings_is_counted_by_chunks() -> None:
    assert is_counted(asking(), ["a", " b"])
    assert not is_counted(asking(), ["é"])
    assert not is_counted(asking(), ["\nOnce"])
    assert is_counted(asking("text_completion"), ["\nOnce"])
    assert not is_counted(asking(stop="x"), ["a"])


@pytest.mark.parametrize(
    ("engine", "body", "answer"),
    [
        ("llamacpp", {"content": "ab", "add_special": False}, {"tokens": [1, 2]}),
        ("vllm", {"model": "m", "prompt": "ab", "add_special_tokens": False}, {"count": 2, "tokens": [1, 2]}),
        ("sglang", {"model": "m", "prompt": "ab", "add_special_tokens": False}, {"tokens": [1, 2], "count": 2}),
        ("tgi", {"inputs": "ab", "add_special_tokens": False}, [{"id": 1}, {"id": 2}]),
    ],
)
def test_an_engine_is_asked_for_a_count(engine: str, body: dict[str, Any], answer: object) -> None:
    question = count_request(engine, "m", "ab")
    assert question is not None
    assert json.loads(question.body) == body
    assert count_in(json.dumps(answer).encode()) == 2


def test_no_count_is_none() -> None:
    assert count_request("lightllm", "m", "ab") is None
    assert count_in(b"nonsense") is None
    assert count_in(b'{"error": 1}') is None


def test_which_engines_go_on() -> None:
    assert {engine for engine in ADAPTERS if goes_on(engine, "chat")} == {"llamacpp", "vllm", "sglang", "tgi"}
    assert not any(goes_on(engine, "embeddings") for engine in ADAPTERS)
    assert said_again("tgi", "chat", "a \n") == "a"
    assert said_again("tgi", "text_completion", "a \n") == "a \n"
