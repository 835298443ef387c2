"""An endpoint whose cache holds nothing stops being credited, and gets another chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.prefix_trust import FULL, RECOVERY_S, Trust


def after(trust: Trust, cached_tokens: int, answers: int, now_s: float = 1.0) -> Trust:
    for _ in range(answers):
        trust = trust.learnt(1000, cached_tokens, now_s)
    return trust


def test_trust_is_lost_by_answers_and_won_back_by_answers() -> None:
    lost = after(FULL, 0, 20)
    assert lost.now(1.0) < 0.02
    assert after(lost, 1000, 20).now(1.0) > 0.98


def test_trust_comes_to_what_the_cache_holds_of_what_it_was_sent() -> None:
    assert after(FULL, 400, 50).now(1.0) == pytest.approx(0.4, abs=0.01)


def test_trust_comes_back_with_time() -> None:
    lost = after(FULL, 0, 50, now_s=100.0)
    assert lost.now(100.0 + RECOVERY_S / 2) == pytest.approx(0.5, abs=0.01)
    assert lost.now(100.0 + 2 * RECOVERY_S) == 1.0


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**9), st.floats(0, 1e9)), max_size=20), st.floats(0, 1e9)
)
def test_trust_is_a_ratio_whatever_engines_say(told: list[tuple[int, int, float]], now_s: float) -> None:
    trust = FULL
    for sent_tokens, cached_tokens, at_s in told:
        trust = trust.learnt(sent_tokens, cached_tokens, at_s)
        assert 0 <= trust.now(now_s) <= 1
