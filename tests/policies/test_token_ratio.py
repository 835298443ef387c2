"""How many tokens a byte is: as engines count, whatever some of them say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.token_ratio import FIRST_RATIO, LEAST_RATIO, MOST_RATIO, NOTHING_LEARNT


def test_before_any_answer_four_bytes_are_a_token() -> None:
    assert NOTHING_LEARNT.tokens_per_byte == FIRST_RATIO == 0.25


@pytest.mark.parametrize("true_ratio", [0.1, 0.3, 0.6])
def test_it_comes_to_what_the_engine_counts(true_ratio: float) -> None:
    ratio = NOTHING_LEARNT
    for text_bytes in (8000, 200, 3000) * 20:
        ratio = ratio.learnt(text_bytes, round(true_ratio * text_bytes))
    assert ratio.tokens_per_byte == pytest.approx(true_ratio, rel=0.05)


def test_other_prompts_change_it() -> None:
    ratio = NOTHING_LEARNT
    for _ in range(200):
        ratio = ratio.learnt(8000, 1000)
    for _ in range(200):
        ratio = ratio.learnt(8000, 4000)
    assert ratio.tokens_per_byte == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(("text_bytes", "tokens"), [(1000, 0), (1000, 1_000_000), (100_000, 3), (0, 5), (0, 0)])
def test_a_count_that_cannot_be_teaches_nothing(text_bytes: int, tokens: int) -> None:
    assert NOTHING_LEARNT.learnt(text_bytes, tokens) == NOTHING_LEARNT


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**9)), max_size=30))
def test_it_stays_within_its_bounds(answers: list[tuple[int, int]]) -> None:
    ratio = NOTHING_LEARNT
    for text_bytes, tokens in answers:
        ratio = ratio.learnt(text_bytes, tokens)
        assert LEAST_RATIO <= ratio.tokens_per_byte <= MOST_RATIO
