"""A simulated engine goes on with a part of its own answer as a real one with greedy sampling would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.simulator.bodies import ChatBody, CompletionBody, Message
from gateway.simulator.calls import CallReader, Generation, Rules

READER = CallReader(("m",), 4096, Rules(completion_tokens=None, goes_on="flagged"))
QUESTION = Message(role="user", content="Tell me about rivers and Oslo.")


def text_of(call: Generation) -> str:
    return "".join(piece.text for piece in call.answers[0].pieces)


@pytest.mark.parametrize("forced", [False, True])
def test_a_chat_goes_on_from_any_token(forced: bool) -> None:
    body = ChatBody(messages=[QUESTION], max_tokens=300, ignore_eos=forced)
    whole = READER.chat(body)
    pieces = [piece.text for piece in whole.answers[0].pieces]
    for cut in range(1, len(pieces)):
        held = Message(role="assistant", content="".join(pieces[:cut]))
        more = body.model_copy(
            update={"messages": [QUESTION, held], "continue_final_message": True, "max_tokens": 300 - cut}
        )
        rest = READER.chat(more)
        assert [piece.text for piece in rest.answers[0].pieces] == pieces[cut:]
        assert rest.answers[0].finish_reason == whole.answers[0].finish_reason
        assert rest.prompt_tokens == whole.prompt_tokens + cut


def test_without_the_flag_it_is_a_turn_of_the_past() -> None:
    held = Message(role="assistant", content="Here")
    assert text_of(READER.chat(ChatBody(messages=[QUESTION, held]))) == text_of(
        READER.chat(ChatBody(messages=[QUESTION]))
    )


def test_an_engine_that_always_goes_on_needs_no_flag() -> None:
    reader = replace(READER, rules=replace(READER.rules, goes_on="always"))
    whole = text_of(reader.chat(ChatBody(messages=[QUESTION])))
    held = Message(role="assistant", content=whole[:30])
    assert text_of(reader.chat(ChatBody(messages=[QUESTION, held]))) == whole[30:]


@pytest.mark.parametrize("prompt", ["Rivers of Norway", "Rivers of Norway ", "Here is"])
def test_a_completion_goes_on_from_any_token(prompt: str) -> None:
    whole = READER.completion(CompletionBody(prompt=prompt, max_tokens=200))
    pieces = [piece.text for piece in whole.answers[0].pieces]
    for cut in range(1, len(pieces)):
        more = CompletionBody(prompt=prompt + "".join(pieces[:cut]), max_tokens=200 - cut)
        assert [piece.text for piece in READER.completion(more).answers[0].pieces] == pieces[cut:]
