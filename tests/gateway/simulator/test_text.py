"""What the engine says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.simulator.embedding import embed
from gateway.simulator.text import Assignment, Piece, Tool, compose, count_tokens, cut, pieces_of, tool_for, topics

WEATHER = Tool("get_weather", "Current weather of a city", {"type": "object", "properties": {"city": {}}})
CLOCK = Tool("clock", "The time of day", None)


def said(assignment: Assignment, channel: str = "content") -> str:
    return "".join(piece.text for piece in compose(assignment) if piece.channel == channel)


@given(st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text
    assert count_tokens(text) == len(pieces_of(text))


def test_a_token_is_a_piece_of_a_word_with_the_space_before_it() -> None:
    assert pieces_of("Hello continuous batching 2026, 天气") == [
        *("Hello", " continu", "ous", " batchin", "g", " 202", "6", ",", " ", "天", "气")
    ]


@pytest.mark.parametrize("prompt", ["Why is the sky blue?", "Tell me about Oslo.", "", "{a} %s {", "天气怎么样"])
def test_an_answer_speaks_of_the_prompt_and_ends_with_a_sentence(prompt: str) -> None:
    answer = said(Assignment(prompt))
    assert topics(prompt)[0] in answer
    assert answer[0].isupper()
    assert answer.endswith(".")
    assert 30 < count_tokens(answer) < 200


def test_the_same_prompt_and_seed_give_the_same_answer_and_another_seed_another() -> None:
    answers = [said(Assignment("Why is the sky blue?", seed=seed)) for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


def test_names_come_before_other_words_as_topics() -> None:
    assert topics("What will the weather be in Paris tomorrow?") == ["Paris", "tomorrow", "weather"]
    assert topics("how are you") == ["that"]


def test_prose_can_be_made_as_long_as_wanted() -> None:
    assert len(compose(Assignment("sky", min_tokens=5000))) >= 5000


def test_thoughts_come_before_the_answer_on_a_channel_of_their_own() -> None:
    pieces = compose(Assignment("sky", thoughts=2))
    channels = [piece.channel for piece in pieces]
    assert channels == sorted(channels, reverse=True)
    assert said(Assignment("sky", thoughts=2), "reasoning") == "The user asks about sky. A short answer will do."


def test_an_answer_to_a_tool_result_repeats_it() -> None:
    assert said(Assignment("weather", tool_result="4 degrees {cold}")).startswith("The tool says: 4 degrees {cold}.")


def test_a_tool_call_names_the_tool_and_fills_its_parameters_from_the_prompt() -> None:
    call = Assignment("What is the weather in Paris?", tool=WEATHER)
    assert said(call, "tool_name") == "get_weather"
    assert said(call, "tool_arguments") == '{"city": "Paris"}'
    assert said(Assignment("x", tool=CLOCK), "tool_arguments") == "{}"


def test_the_tool_that_shares_words_with_the_prompt_is_chosen() -> None:
    assert tool_for([CLOCK, WEATHER], "How is the weather in Oslo?") == WEATHER
    assert tool_for([CLOCK, WEATHER], "Sing!") is None
    assert tool_for([], "Sing!") is None


PIECES = [Piece("reasoning", "one two"), *(Piece("content", text) for text in pieces_of("one two three four"))]


def test_an_answer_that_ends_by_itself_keeps_its_finish_reason() -> None:
    answer = cut(PIECES, 100, (), finish_reason="stop")
    assert (answer.pieces, answer.finish_reason, answer.stop_reason) == (tuple(PIECES), "stop", None)


def test_an_answer_longer_than_its_limit_is_cut_to_it() -> None:
    answer = cut(PIECES, 3, (), finish_reason="stop")
    assert (len(answer.pieces), answer.finish_reason) == (3, "length")


@pytest.mark.parametrize(
    ("stop", "shown", "tokens"),
    [(("three", "two"), "one ", 3), (("e f",), "one two thre", 5), (("w",), "one t", 3), (("one",), "", 2)],
)
def test_the_first_stop_string_ends_the_content_before_it(stop: tuple[str, ...], shown: str, tokens: int) -> None:
    answer = cut(PIECES, 100, stop, finish_reason="stop")
    assert "".join(piece.text for piece in answer.pieces if piece.channel == "content") == shown
    assert len(answer.pieces) == tokens
    assert answer.finish_reason == "stop"
    assert answer.stop_reason in stop


def test_a_stop_string_beyond_the_limit_does_not_count() -> None:
    assert cut(PIECES, 3, ("four",), finish_reason="stop").stop_reason is None


def test_texts_that_share_words_lie_nearer_than_others() -> None:
    def near(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(embed(one, 384), embed(other, 384), strict=True))

    assert near("a blue sky over Oslo", "the sky over Oslo is blue") > 0.6
    assert near("a blue sky over Oslo", "invoice number seven") < 0.3
    assert near("weather", "weathers") > near("weather", "invoice")


@given(st.text(max_size=50), st.integers(1, 600))
def test_a_vector_has_length_one(text: str, dimensions: int) -> None:
    vector = embed(text, dimensions)
    assert len(vector) == dimensions
    assert sum(value * value for value in vector) == pytest.approx(1.0)
