"""When a request is late, where a second attempt may go, and how many a pool may begin."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.hedging import MOST_CREDIT, SAMPLES_NEEDED, HedgeBudget, HedgeRules, has_room, late_after_s
from policies.quantile import LogHistogram
from policies.types import EndpointSnapshot, PoolView

RULES = HedgeRules(share=0.05, quantile=0.95, least_s=0.01)


def learnt(*samples_s: float) -> LogHistogram:
    made = LogHistogram()
    for sample_s in samples_s:
        made.add(sample_s)
    return made


def endpoint(in_flight: int = 0, pending: int = 0, **more: float) -> EndpointSnapshot:
    return EndpointSnapshot("e", "healthy", in_flight, pending=pending, **more)  # type: ignore[arg-type]


def test_nothing_is_late_before_anything_is_known() -> None:
    assert late_after_s(None, RULES) is None
    assert late_after_s(learnt(*[0.1] * (SAMPLES_NEEDED - 1)), RULES) is None
    assert late_after_s(learnt(*[0.1] * SAMPLES_NEEDED), RULES) is not None


@pytest.mark.parametrize("share", [0.03, 0.05, 0.07])
def test_a_slow_tail_is_late_whether_it_is_more_or_less_than_the_quantile_leaves(share: float) -> None:
    chance = random.Random(7)
    waits = learnt(*[chance.uniform(0.05, 0.1) + (chance.random() < share) for _ in range(2000)])
    after_s = late_after_s(waits, RULES)
    assert after_s is not None
    assert 0.09 < after_s < 0.3


def test_nothing_is_late_before_the_least_wait() -> None:
    rules = RULES._replace(least_s=2.0)
    assert late_after_s(learnt(*[0.1] * SAMPLES_NEEDED), rules) == 2.0


def room(second: EndpointSnapshot, *others: EndpointSnapshot) -> bool:
    return has_room(second, PoolView(10.0, 0, (second, *others)))


def test_a_second_attempt_goes_only_where_there_is_room() -> None:
    late = endpoint(in_flight=1, pending=1)
    assert room(endpoint(in_flight=2, pending=1), late)
    assert room(endpoint(busy_until_s=9.0), late)
    assert not room(endpoint(busy_until_s=11.0), late)
    assert not room(endpoint(waiting=1, sampled_s=0.0), late)
    assert room(endpoint(in_flight=1, slots=2), late)
    assert not room(endpoint(in_flight=2, slots=2), late)


@pytest.mark.parametrize("sampled_s", [None, -0.1])
def test_a_queue_that_an_engine_told_of_long_ago_takes_no_room(sampled_s: float | None) -> None:
    assert room(endpoint()._replace(waiting=1, sampled_s=sampled_s), endpoint(in_flight=1, pending=1))


def test_that_the_late_ones_endpoint_is_shunned_makes_the_others_no_busier_than_they_are() -> None:
    late = endpoint(in_flight=1, pending=1)
    assert room(endpoint(in_flight=9, pending=3), late, endpoint(in_flight=8, pending=2))


def test_much_more_to_do_than_the_pool_on_average_is_no_room() -> None:
    others = [endpoint(in_flight=4, pending=2)] * 3
    assert room(endpoint(in_flight=8, pending=4), *others)
    assert not room(endpoint(in_flight=14), *others)
    assert not room(endpoint(pending=7), *others)
    assert not room(endpoint(in_flight=14), *others, endpoint(in_flight=99)._replace(health="ejected"))


def test_each_request_earns_a_share_of_a_second_attempt() -> None:
    budget = HedgeBudget(RULES)
    for _ in range(20):
        assert budget.take(100.0, room=True) == "budget" if _ == 0 else True
        budget.request(100.0)
    assert budget.take(100.0, room=False) == "busy"
    assert budget.take(100.0, room=True) is None
    assert budget.take(100.0, room=True) == "budget"


@settings(deadline=None)
@given(late=st.lists(st.booleans(), max_size=2000), share=st.floats(0.01, 0.5))
def test_never_more_than_the_share_and_what_was_saved(late: list[bool], share: float) -> None:
    budget = HedgeBudget(RULES._replace(share=share))
    started = [0]
    for number, is_late in enumerate(late):
        budget.request(number / 10)
        begun = is_late and budget.take(number / 10, room=True) is None
        started.append(started[-1] + begun)
        assert started[-1] <= share * (number + 1) + 1e-6
        since = max(number - 200, 0)
        assert started[-1] - started[since] <= share * (number + 1 - since) + MOST_CREDIT + 1e-6


def test_a_pool_in_which_most_are_late_is_saturated() -> None:
    budget = HedgeBudget(RULES._replace(share=0.5))
    told = list[str | None]()
    for number in range(100):
        budget.request(100.0)
        if number >= 50:
            told.append(budget.take(100.0, room=True))
    assert told[0] is None
    assert told[-1] == "saturated"
    assert budget.take(200.0, room=True) is None  # it is over once they have been forgotten


def test_a_pool_in_which_half_the_attempts_fail_begins_none() -> None:
    budget = HedgeBudget(RULES._replace(share=0.5))
    for _ in range(40):
        budget.request(100.0)
    for _ in range(19):
        budget.failed(100.0)
    assert budget.take(100.0, room=True) is None
    budget.failed(100.0)
    assert budget.take(100.0, room=True) == "failing"
