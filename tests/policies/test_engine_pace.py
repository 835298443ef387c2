"""What is usual for an endpoint, learnt from answers of which some had to queue."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine_pace import SAMPLES_NEEDED, EnginePace


def after(*answers: tuple[int, float, float | None]) -> EnginePace:
    pace = EnginePace()
    for answer in answers:
        pace = pace.answered(*answer)
    return pace


def test_a_few_answers_are_needed() -> None:
    assert after(*[(100, 0.2, None)] * (SAMPLES_NEEDED - 1)).expected_prefill_s(100) is None
    assert after(*[(100, 0.2, None)] * SAMPLES_NEEDED).expected_prefill_s(100) == pytest.approx(0.2)


def test_prompts_of_another_size_are_another_matter() -> None:
    pace = after(*[(100, 0.2, None)] * 5, *[(4000, 2.0, None)] * 5)
    assert pace.expected_prefill_s(120) == pytest.approx(0.2)
    assert pace.expected_prefill_s(3000) == pytest.approx(2.0)
    assert pace.expected_prefill_s(20) is None


def test_answers_that_had_to_queue_hardly_move_it() -> None:
    some = Random(1)
    answers = [(100, 0.2 + (some.expovariate(0.5) if some.random() < 0.6 else 0.0), None) for _ in range(500)]
    expected_s = after(*answers).expected_prefill_s(100)
    assert expected_s is not None
    assert 0.2 <= expected_s < 0.35


def test_it_follows_an_engine_that_became_faster() -> None:
    expected_s = after(*[(100, 1.0, None)] * 50, *[(100, 0.1, None)] * 20).expected_prefill_s(100)
    assert expected_s == pytest.approx(0.1, rel=0.05)


def test_the_time_of_a_token_is_a_moving_mean() -> None:
    assert after((1, 1.0, None)).token_s is None
    assert after((1, 1.0, 0.05), (1, 1.0, None)).token_s == 0.05
    assert after(*[(1, 1.0, 0.01), *[(1, 1.0, 0.02)] * 60]).token_s == pytest.approx(0.02, rel=0.01)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 10**9), st.floats(0, 1000), st.none() | st.floats(0, 10)), max_size=30))
def test_it_stays_within_what_was_seen(answers: list[tuple[int, float, float | None]]) -> None:
    pace = after(*answers)
    seen = [first_s for _, first_s, _ in answers]
    for prompt_tokens, _, _ in answers:
        expected_s = pace.expected_prefill_s(prompt_tokens)
        assert expected_s is None or min(seen) - 1e-9 <= expected_s <= max(seen) + 1e-9
