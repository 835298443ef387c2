"""What answers say of themselves, for traces."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.answer_facts import AnswerFacts, answer_facts
from adapters.answer_ids import AnswerIds
from adapters.continuation import Rest
from adapters.failures import AdapterError
from adapters.joined_stream import JoinedStream
from adapters.ollama import OLLAMA
from adapters.openai_answer import EmbeddingsAnswer, StreamedAnswer, WholeAnswer
from adapters.openai_stream import OpenAiStream
from adapters.said import Said
from tests.adapters.ollama_calls import HI, call, decoder, ended, said
from tests.adapters.test_continuation import asking, rest_of
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]
SSE_END = b"data: [DONE]\n\n"
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("x" * 500),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def choice(reason: str | None, index: int = 0, **message: Any) -> Json:
    return {"index": index, "message": {"role": "assistant", "content": "a", **message}, "finish_reason": reason}


def whole(*choices: Json, **more: Any) -> bytes:
    counts = {"prompt_tokens": 1, "completion_tokens": 2}
    return json.dumps({"id": "c-1", "model": "engine/8b", "choices": choices, "usage": counts, **more}).encode()


def told(body: bytes, model: str = "m") -> AnswerFacts | None:
    reader = WholeAnswer(model, 0, AnswerIds(call(HI)))
    reader.feed(body)
    return reader.close().facts()


def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> bytes:
    choices = [{"index": index, "delta": delta, "finish_reason": finish}]
    return b"data: %b\n\n" % json.dumps({"id": "c-1", "model": "engine/8b", "choices": choices}).encode()


@pytest.mark.parametrize("model", ["m", "engine/8b"])
@pytest.mark.parametrize(
    ("choices", "reasons"),
    [
        ([choice("stop")], ("stop",)),
        ([choice("length"), choice("stop", 1)], ("length", "stop")),
        ([choice("eos_token")], ("stop",)),
        ([choice("stop", tool_calls=[{"id": "x", "function": {"name": "f", "arguments": "{}"}}])], ("tool_calls",)),
        ([choice(None)], ()),
    ],
)
def test_a_whole_answer_has_the_engines_id_and_model_and_the_reasons_that_clients_read(
    model: str, choices: list[Json], reasons: tuple[str, ...]
) -> None:
    assert told(whole(*choices), model) == AnswerFacts("c-1", "engine/8b", reasons)


def test_of_many_choices_the_first_are_told_and_of_a_long_text_the_beginning() -> None:
    body = whole(*[choice("stop", n) for n in range(40)], id="x" * 1000, model="y" * 1000)
    assert told(body) == AnswerFacts("x" * 128, "y" * 128, ("stop",) * 16)


@pytest.mark.parametrize("value", [None, 7, ["x"], {"x": 1}, "", "a\nb", "a\x00", "\ud800"])
def test_what_is_no_text_of_one_line_is_not_told(value: Any) -> None:
    assert answer_facts(value, value, [value, "stop"]) == AnswerFacts("", "", ("stop",))
    assert answer_facts(value, value, [value]) is None


@pytest.mark.parametrize("model", ["m", "engine/8b"])
@pytest.mark.parametrize(
    "pieces",
    [
        [chunk(role="assistant", content=""), chunk(content="a"), chunk(content="b"), chunk(finish="stop")],
        [chunk(reasoning="a"), chunk(reasoning="b"), chunk(content="c", finish="stop")],
        [chunk(content="a"), chunk(finish="eos_token")],
    ],
    ids=["plain", "rewritten", "in another's words"],
)
def test_a_stream_has_the_same_however_its_chunks_go_on(pieces: list[bytes], model: str) -> None:
    stream = OpenAiStream(model, wants_usage=True)
    assert stream.facts() is None
    stream.feed(pieces[0])
    assert stream.facts() == AnswerFacts("c-1", "engine/8b", ())
    for piece in pieces[1:]:
        stream.feed(piece)
    stream.feed(SSE_END)
    stream.close()
    assert stream.facts() == AnswerFacts("c-1", "engine/8b", ("stop",))


def test_a_stream_of_choices_has_a_reason_for_each_that_ended_in_their_order() -> None:
    stream = OpenAiStream("m", wants_usage=False)
    stream.feed(chunk(2, content="a") + chunk(1, "length") + chunk(0, "stop"))
    assert stream.facts() == AnswerFacts("c-1", "engine/8b", ("stop", "length"))


def test_a_whole_answer_that_came_as_a_stream_has_them_too() -> None:
    reader = StreamedAnswer(OpenAiStream("m", wants_usage=True), chat=True)
    reader.feed(chunk(content="a") + chunk(finish="stop") + SSE_END)
    answer = reader.close()
    assert json.loads(answer.body)["model"] == "m"
    assert answer.facts() == AnswerFacts("c-1", "engine/8b", ("stop",))


def test_an_engine_that_goes_on_has_its_own_id_where_the_client_reads_the_first_ones() -> None:
    so_far = Said()
    so_far.head = {"id": "first", "created": 1}
    made: Rest = rest_of("vllm", asking(), ["a"], 1)
    joined = JoinedStream(OpenAiStream("m", wants_usage=True), made, so_far)
    out = joined.feed(chunk(content="b") + chunk(finish="stop") + SSE_END) + joined.close()
    assert out.count(b'"first"') == out.count(b"data: {")
    assert b"engine/8b" not in out
    assert joined.facts() == AnswerFacts("c-1", "engine/8b", ("stop",))


def test_an_ollama_answer_has_the_id_that_the_client_reads() -> None:
    stream = decoder()
    stream.feed(said("a"))
    assert stream.facts() is None
    stream.feed(ended(done_reason="length"))
    assert stream.facts() == AnswerFacts("chatcmpl-r1", "engine:8b", ("length",))
    reader = OLLAMA.answer_reader(call(HI), answer_head("application/x-ndjson"), streamed=True)
    reader.feed(said("a") + ended(done_reason="length"))
    assert reader.close().facts() == stream.facts()


def test_embeddings_have_no_reasons() -> None:
    reader = EmbeddingsAnswer("m")
    reader.feed(json.dumps({"id": "embd-1", "model": "engine/e", "data": [], "usage": {"prompt_tokens": 1}}).encode())
    assert reader.close().facts() == AnswerFacts("embd-1", "engine/e", ())
    other = OLLAMA.answer_reader(call({"model": "m"}, "embeddings"), answer_head("application/json"), streamed=False)
    other.feed(json.dumps({"model": "engine:e", "embeddings": [[1.0]]}).encode())
    assert other.close().facts() == AnswerFacts("", "engine:e", ())


@given(ANY_JSON, ANY_JSON, st.lists(ANY_JSON, max_size=3))
def test_whatever_an_engine_says_of_itself_is_bounded_text(answer_id: Any, model: Any, reasons: list[Any]) -> None:
    body = whole(*[{**choice("stop"), "finish_reason": reason} for reason in reasons], id=answer_id, model=model)
    event: Json = {
        "id": answer_id,
        "model": model,
        "choices": [{"delta": {}, "finish_reason": reason} for reason in reasons],
    }
    stream = OpenAiStream("m", wants_usage=False)
    stream.feed(b"data: %b\n\n" % json.dumps(event).encode())
    found = [stream.facts()]
    with suppress(AdapterError):
        found.append(told(body))
    for facts in found:
        for text in () if facts is None else (facts.id, facts.model, *facts.finish_reasons):
            assert isinstance(text, str)
            assert text.isprintable()
            assert len(text) <= 128
