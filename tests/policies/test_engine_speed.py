"""What is learnt of an endpoint's speed: engines whose speed is known answer, and it is found."""

from __future__ import annotations

from random import Random

import pytest

from policies.engine_speed import KNEE_TOKENS, EngineSpeed, after_answer, after_first_output
from policies.types import Answered, FirstOutput


def taught(
    known: EngineSpeed | None, base_s: float, token_s: float, prompts: list[int], *, from_s: float = 0.0
) -> EngineSpeed:
    """An endpoint that gets one prompt every hundred seconds."""
    for turn, tokens in enumerate(prompts):
        sent_s = from_s + 100.0 * turn
        first_s = sent_s + base_s + token_s * tokens
        known = after_first_output(known, FirstOutput(sent_s, first_s, tokens, tokens, 0, 0, 0, 1))
    assert known is not None
    return known


def prompts(count: int, seed: int = 1) -> list[int]:
    chance = Random(seed)
    return [chance.randrange(50, 6000) for _ in range(count)]


def answered(known: EngineSpeed | None, output_tokens: int, token_s: float | None) -> EngineSpeed:
    return after_answer(known, Answered(0.0, 9.0, 1.0, None, None, output_tokens, token_s))


@pytest.mark.parametrize(("base_s", "token_s"), [(0.08, 40e-6), (0.03, 150e-6), (0.2, 10e-3)])
def test_base_and_time_a_token_are_told_apart_by_prompts_of_unlike_length(base_s: float, token_s: float) -> None:
    known = taught(None, base_s, token_s, prompts(100))
    assert known.token_s == pytest.approx(token_s, rel=0.1)
    assert known.base_s + 1000 * known.token_s == pytest.approx(base_s + 1000 * token_s, rel=0.1)


def test_prompts_of_one_length_are_predicted_whatever_is_base_and_what_is_tokens() -> None:
    known = taught(None, 0.1, 50e-6, [1000] * 50)
    assert known.base_s + 1000 * known.token_s == pytest.approx(0.15, rel=0.02)


def test_the_first_first_output_already_tells_a_slow_machine_from_a_quick_one() -> None:
    quick, slow = taught(None, 0.1, 50e-6, [2000]), taught(None, 0.1, 500e-6, [2000])
    assert slow.base_s + 2000 * slow.token_s > 4 * (quick.base_s + 2000 * quick.token_s)


def test_a_prompt_that_waited_behind_another_is_work_from_the_first_output_before_it() -> None:
    known = taught(None, 0.1, 50e-6, prompts(60))
    sent_s, last_s = 90_000.0, 90_000.0 + 0.1 + 50e-6 * 4000
    known = after_first_output(known, FirstOutput(sent_s, last_s, 4000, 4000, 0, 0, 0, 2))
    known = after_first_output(known, FirstOutput(sent_s, last_s + 50e-6 * 2000, 2000, 2000, 1, 4000, 4000, 2))
    assert known.token_s == pytest.approx(50e-6, rel=0.1)


def test_a_machine_that_slows_down_is_found_out_and_forgiven_once_it_is_quick_again() -> None:
    known = taught(None, 0.1, 50e-6, prompts(60))
    slow = taught(known, 0.1, 150e-6, prompts(80, 2), from_s=10_000.0)
    assert slow.token_s == pytest.approx(150e-6, rel=0.15)
    again = taught(slow, 0.1, 50e-6, prompts(80, 3), from_s=30_000.0)
    assert again.token_s == pytest.approx(50e-6, rel=0.15)


def test_one_answer_that_was_late_does_not_pass_for_the_base() -> None:
    known = taught(None, 0.1, 50e-6, prompts(60))
    late = after_first_output(known, FirstOutput(90_000.0, 90_030.0, 100, 20, 0, 0, 0, 1))
    assert late.base_s < 0.2


def test_nothing_makes_a_token_take_no_time() -> None:
    known = taught(None, 0.0, 0.0, [0, 0, 5, 100_000])
    assert known.token_s > 0.0


def test_the_pace_is_time_by_tokens_over_all_answers() -> None:
    known = answered(answered(None, 2, 0.5), 501, 0.01)
    assert known.gap_s == pytest.approx((0.5 + 500 * 0.01) / 501, rel=0.01)
    assert known.output_tokens == pytest.approx((2 + 501) / 2)


def test_the_pace_holds_for_the_load_that_it_was_seen_at() -> None:
    known: EngineSpeed | None = None
    for turn in range(50):
        known = after_first_output(known, FirstOutput(turn, turn + 0.1, 100, 100, 0, 0, 20_000, 10))
        known = answered(known, 101, 0.02)
    assert known is not None
    assert known.pace_s * (20_000 + 10 * 300 + KNEE_TOKENS) == pytest.approx(0.02, rel=0.01)


def test_an_answer_whose_pace_cannot_be_told_leaves_it_as_it_was() -> None:
    known = answered(None, 101, 0.02)
    assert answered(known, 1, None).gap_s == known.gap_s
