"""From when on a silence is unheard of in a pool."""

from __future__ import annotations

from math import inf

import pytest

from policies.usual_waits import FACTOR, LEAST_S, SAMPLES_NEEDED, UsualWaits


def seen(wait_s: float, count: int = SAMPLES_NEEDED, *, stream: bool = True, prompt_tokens: int = 100) -> UsualWaits:
    usual = UsualWaits()
    for _ in range(count):
        usual.first_output(stream, prompt_tokens, wait_s)
    return usual


def test_nothing_is_unheard_of_before_enough_was_heard() -> None:
    usual = seen(0.1, SAMPLES_NEEDED - 1)
    assert usual.limits(True, 100) is None
    usual.first_output(True, 100, 0.1)
    assert usual.limits(True, 100) is not None


def test_a_limit_is_ten_times_what_one_in_a_hundred_takes() -> None:
    limits = seen(2.0).limits(True, 100)
    assert limits is not None
    assert FACTOR * 2.0 <= limits.first_token_s <= FACTOR * 2.0 * 1.2
    assert limits.stall_s == inf


def test_a_limit_is_never_shorter_than_a_few_seconds() -> None:
    limits = seen(0.001).limits(True, 100)
    assert limits is not None
    assert limits.first_token_s == LEAST_S


@pytest.mark.parametrize(("stream", "prompt_tokens"), [(True, 200), (True, 10_000), (True, 30), (False, 100)])
def test_a_prompt_of_another_size_and_a_whole_answer_are_not_known_from_it(stream: bool, prompt_tokens: int) -> None:
    assert seen(0.1).limits(stream, prompt_tokens) is None


def test_gaps_are_the_same_for_all_prompts() -> None:
    usual = UsualWaits()
    for _ in range(SAMPLES_NEEDED):
        usual.longest_gap(1.0)
    limits = usual.limits(True, 9999)
    assert limits is not None
    assert limits.first_token_s == inf
    assert FACTOR <= limits.stall_s <= FACTOR * 1.2


def test_a_limit_follows_what_becomes_usual() -> None:
    usual = seen(0.1)
    for _ in range(SAMPLES_NEEDED):
        usual.first_output(True, 100, 4.0)
    limits = usual.limits(True, 100)
    assert limits is not None
    assert limits.first_token_s >= FACTOR * 4.0
