"""What is usual for an endpoint, learnt from answers of which some had to queue."""

from __future__ import annotations

from functools import reduce
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine_pace import moving_mean, next_level_s, prompt_size


def level_s(*samples_s: float) -> float:
    return reduce(next_level_s, samples_s)


def test_prompts_of_another_size_are_another_matter() -> None:
    assert prompt_size(100) == prompt_size(120) != prompt_size(130)
    assert prompt_size(-5) == prompt_size(0) == prompt_size(1)
    assert prompt_size(10**12) == prompt_size(10**9)


def test_answers_that_had_to_queue_hardly_move_it() -> None:
    some = Random(1)
    usual_s = level_s(*(0.2 + (some.expovariate(0.5) if some.random() < 0.6 else 0.0) for _ in range(500)))
    assert 0.2 <= usual_s < 0.25


def test_it_follows_an_engine_that_became_faster() -> None:
    assert level_s(*[1.0] * 50, *[0.1] * 20) == pytest.approx(0.1, rel=0.05)


def test_it_follows_an_engine_that_became_slower() -> None:
    assert level_s(*[0.1] * 50, *[0.2] * 50) == pytest.approx(0.2, rel=0.05)


def test_the_time_of_a_token_is_a_moving_mean() -> None:
    assert moving_mean(None, 0.05) == 0.05
    assert reduce(moving_mean, [0.02] * 60, 0.01) == pytest.approx(0.02, rel=0.01)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1000), min_size=1, max_size=30))
def test_it_stays_within_what_was_seen(samples_s: list[float]) -> None:
    usual_s = level_s(*samples_s)
    assert min(samples_s) - 1e-9 <= usual_s <= max(samples_s) + 1e-9
