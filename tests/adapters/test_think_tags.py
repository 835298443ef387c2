"""Thinking that is left in the text goes where other engines send it, wherever the pieces are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.answer_ids import AnswerIds
from adapters.ollama import OLLAMA
from adapters.openai_answer import WholeAnswer
from adapters.openai_stream import OpenAiStream
from adapters.think_tags import ThinkTags
from tests.adapters.ollama_calls import HI, call

TEXTS = [
    ("<think>first, this</think>the answer", "first, this", "the answer"),
    ("\n<think>\nfirst\n</think>\n\nthe answer", "\nfirst\n", "\n\nthe answer"),
    ("<think></think>the answer", "", "the answer"),
    ("<think>cut off by the limit", "cut off by the limit", ""),
    ("<think>ends in a tag </thi", "ends in a tag </thi", ""),
    ("the tag <think> in a text</think> is text", "", "the tag <think> in a text</think> is text"),
    ("<thinking>is another tag", "", "<thinking>is another tag"),
    ("<thin", "", "<thin"),
    ("  \n", "", "  \n"),
    ("<think>a</think><think>b</think>", "a", "<think>b</think>"),
    ("<think>2 < 3 </ and </think >, </think>so", "2 < 3 </ and </think >, ", "so"),
]


def split(pieces: list[str]) -> tuple[str, str]:
    tags = ThinkTags()
    parts = [tags.split(piece) for piece in pieces] + [tags.rest()]
    return "".join(p.reasoning for p in parts), "".join(p.answer for p in parts)


@pytest.mark.parametrize(("text", "reasoning", "answer"), TEXTS)
def test_the_same_comes_out_wherever_the_text_is_cut(text: str, reasoning: str, answer: str) -> None:
    assert split([text]) == (reasoning, answer)
    assert split(list(text)) == (reasoning, answer)
    for at in range(len(text)):
        assert split([text[:at], text[at:]]) == (reasoning, answer)


@given(st.text(alphabet="<>/think \nab", max_size=60), st.data())
def test_any_text_in_any_pieces(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    reasoning, answer = split(pieces)
    assert (reasoning, answer) == split([text])
    if not text.lstrip().startswith("<think>"):
        assert (reasoning, answer) == ("", text)


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    fields = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def streamed(chunks: list[bytes]) -> tuple[str, str, int]:
    decoder = OpenAiStream("m", wants_usage=False)
    out = b"".join(decoder.feed(piece) for piece in chunks)
    out += decoder.feed(b"data: [DONE]\n\n")
    assert decoder.error is None
    assert decoder.finished
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in out.split(b"\n\n") if event]
    assert [d.get("reasoning") for d in deltas] == [d.get("reasoning_content") for d in deltas]
    reasoning = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    return reasoning, "".join(delta.get("content") or "" for delta in deltas), decoder.outputs


@pytest.mark.parametrize(("text", "reasoning", "answer"), TEXTS)
def test_a_stream_gives_thinking_as_reasoning(text: str, reasoning: str, answer: str) -> None:
    role = chunk({"role": "assistant", "content": ""})
    for pieces in ([text], list(text)):
        apart = [role, *(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")]
        assert streamed(apart)[:2] == (reasoning, answer)
        together = [role, *(chunk({"content": piece}) for piece in pieces[:-1]), chunk({"content": pieces[-1]}, "stop")]
        assert streamed(together)[:2] == (reasoning, answer)


def test_thinking_is_output_and_its_tag_is_not() -> None:
    stream = [chunk({"content": "<think>"}), chunk({"content": "a"}), chunk({"content": "</think>"})]
    assert streamed([*stream, chunk({"content": "b"}), chunk({}, "stop")]) == ("a", "b", 2)


def test_an_engine_that_takes_thinking_apart_itself_is_left_alone() -> None:
    stream = [chunk({"reasoning_content": "r"}), chunk({"content": "<think>"}), chunk({"content": " is a tag"}, "stop")]
    assert streamed(stream) == ("r", "<think> is a tag", 3)


@pytest.mark.parametrize(
    ("before", "reasoning", "answer"),
    [("  ", "r", "  a"), ("<thi", "r", "<thia"), ("<think>x</thi", "x</thir", "a"), ("\n<think>", "r", "a")],
)
def test_what_is_held_back_when_an_engine_begins_to_take_thinking_apart_is_not_lost(
    before: str, reasoning: str, answer: str
) -> None:
    for key in ("reasoning", "reasoning_content"):
        chunks = [chunk({"content": before}), chunk({key: "r"}), chunk({"content": "a"}), chunk({}, "stop")]
        assert streamed(chunks)[:2] == (reasoning, answer)
    decoder = OLLAMA.stream_decoder(call(HI))
    lines = [{"content": before}, {"content": "", "thinking": "r"}, {"content": "a"}]
    messages = [json.dumps({"message": message, "done": False}).encode() + b"\n" for message in lines]
    out = b"".join(map(decoder.feed, messages)) + decoder.feed(b'{"message": {"content": ""}, "done": true}\n')
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in out.split(b"\n\n") if event]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == reasoning
    assert "".join(delta.get("content") or "" for delta in deltas) == answer


def test_plain_chunks_pass_by_the_template_after_the_thinking() -> None:
    decoder = OpenAiStream("m", wants_usage=False)
    for text in ("<think>", "a", "</think>"):
        decoder.feed(chunk({"content": text}))
        assert decoder.plain is None
    plain = chunk({"content": "b"})
    assert decoder.feed(plain) == plain
    assert decoder.plain is not None


@pytest.mark.parametrize(("text", "reasoning", "answer"), TEXTS)
def test_a_whole_answer_gives_thinking_as_reasoning(text: str, reasoning: str, answer: str) -> None:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    reader = WholeAnswer("m", 0, AnswerIds(call(HI)))
    reader.feed(json.dumps({"id": "c", "model": "m", "choices": [choice], "usage": usage}).encode())
    message = json.loads(reader.close().body)["choices"][0]["message"]
    assert (message.get("reasoning_content") or "", message["content"] or "") == (reasoning, answer)
    assert message.get("reasoning") == message.get("reasoning_content")
