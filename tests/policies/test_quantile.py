"""Quantiles in constant memory: near, never too short, and of what is new."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.quantile import LogHistogram

DURATIONS_S = st.floats(0.001, 3500.0)


def of(*samples_s: float) -> LogHistogram:
    made = LogHistogram()
    for sample_s in samples_s:
        made.add(sample_s)
    return made


@settings(deadline=None)
@given(samples_s=st.lists(DURATIONS_S, min_size=1, max_size=60), ratio=st.floats(0, 0.999))
def test_so_many_samples_are_not_longer_and_no_more_than_need_be(samples_s: list[float], ratio: float) -> None:
    told_s = of(*samples_s).quantile_s(ratio)
    not_longer = sum(sample_s <= told_s * 1.0001 for sample_s in samples_s)
    assert not_longer >= ratio * len(samples_s) * 0.94  # newer samples are heavier, by a thousandth each
    assert told_s <= max(samples_s) * 1.2


@settings(deadline=None)
@given(sample_s=DURATIONS_S, count=st.integers(1, 50))
def test_one_value_is_told_a_fifth_too_long_at_most(sample_s: float, count: int) -> None:
    told_s = of(*[sample_s] * count).quantile_s(0.5)
    assert sample_s * 0.9999 <= told_s <= sample_s * 1.2


@settings(deadline=None)
@given(samples_s=st.lists(DURATIONS_S, min_size=1), low=st.floats(0, 1), high=st.floats(0, 1))
def test_a_higher_quantile_is_not_shorter(samples_s: list[float], low: float, high: float) -> None:
    made = of(*samples_s)
    assert made.quantile_s(min(low, high)) <= made.quantile_s(max(low, high))


def test_nothing_is_told_of_nothing() -> None:
    assert LogHistogram().quantile_s(0.99) == 0.0


def test_what_was_usual_long_ago_is_forgotten() -> None:
    made = of(*[10.0] * 3000)
    for _ in range(5000):
        made.add(0.1)
    assert made.quantile_s(0.9) < 0.2


def test_it_can_go_on_for_ever() -> None:
    made = of(*[0.1, 0.2] * 30_000)
    assert 0.1 <= made.quantile_s(0.3) < 0.13
    assert 0.2 <= made.quantile_s(0.9) < 0.25


def test_what_is_off_the_scale_is_at_its_ends() -> None:
    assert of(0.0, 0.0).quantile_s(0.5) == 0.001
    assert of(1e9).quantile_s(0.5) > 3600.0
