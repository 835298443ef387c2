"""Whose fault a status is, how long to wait, and how many further attempts a pool may make."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies.retry import ALWAYS_PER_SECOND, Blame, RetryBudget, blame, wait_s
from policies.window import WINDOW_S

ALWAYS = ALWAYS_PER_SECOND * WINDOW_S


@pytest.mark.parametrize(
    ("whose", "statuses"),
    [
        ("client", [400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422, 431, 501]),
        ("credential", [401, 403]),
        ("busy", [429, 503]),
        ("engine", [500, 502, 504, 507, 529, 599]),
    ],
)
def test_each_status_is_somebodys_fault(whose: Blame, statuses: list[int]) -> None:
    assert {status: blame(status) for status in statuses} == dict.fromkeys(statuses, whose)


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308])
def test_a_redirect_is_the_engines_fault_but_on_a_path_that_the_client_chose(status: int) -> None:
    assert blame(status) == "engine"
    assert blame(status, own_path=False) == "client"


@pytest.mark.parametrize("status", [401, 403])
def test_a_credential_that_the_client_showed_is_the_clients(status: int) -> None:
    assert blame(status, own_credential=False) == "client"


def test_a_path_that_is_forbidden_is_no_credential_refused() -> None:
    assert blame(403, own_path=False) == "client"
    assert blame(401, own_path=False) == "credential"


@settings(deadline=None)
@given(status=st.integers(400, 599))
def test_no_status_is_left_out(status: int) -> None:
    assert blame(status) in ("client", "busy", "credential", "engine")


@settings(deadline=None)
@given(status=st.integers(500, 599))
def test_a_5xx_is_never_the_clients_fault_but_for_a_missing_feature(status: int) -> None:
    assert (blame(status) == "client") == (status == 501)


@settings(deadline=None)
@given(attempt=st.integers(2, 60), jitter=st.floats(0, 1))
def test_a_wait_is_never_longer_than_a_second_nor_nothing(attempt: int, jitter: float) -> None:
    assert 0.025 <= wait_s(attempt, jitter) <= 1.0


@settings(deadline=None)
@given(attempt=st.integers(2, 60), jitter=st.floats(0, 1))
def test_waits_grow_with_the_attempt(attempt: int, jitter: float) -> None:
    assert wait_s(attempt, jitter) <= wait_s(attempt + 1, jitter)


def test_the_first_wait_is_25_to_50_ms_and_the_next_twice_that() -> None:
    assert (wait_s(2, 0.0), wait_s(2, 1.0)) == pytest.approx((0.025, 0.05))
    assert (wait_s(3, 0.0), wait_s(3, 1.0)) == pytest.approx((0.05, 0.1))


def taken(budget: RetryBudget, tries: int, now_s: float) -> int:
    return sum(budget.take(now_s) for _ in range(tries))


def test_a_quiet_pool_may_make_three_a_second() -> None:
    assert taken(RetryBudget(0.2), 100, 1000.0) == ALWAYS


def test_a_budget_of_nothing_still_allows_a_few() -> None:
    assert taken(RetryBudget(0.0), 100, 1000.0) == ALWAYS


def test_a_busy_pool_may_make_its_share() -> None:
    budget = RetryBudget(0.2)
    for _ in range(1000):
        budget.request(1000.0)
    assert taken(budget, 1000, 1000.5) == 200


def test_what_was_spent_comes_back_after_the_window() -> None:
    budget = RetryBudget(0.2)
    assert taken(budget, 100, 1000.0) == ALWAYS
    assert not budget.take(1000.0 + WINDOW_S - 1)
    assert taken(budget, 100, 1000.0 + WINDOW_S) == ALWAYS


def test_requests_of_long_ago_give_no_budget() -> None:
    budget = RetryBudget(1.0)
    for _ in range(500):
        budget.request(1000.0)
    assert taken(budget, 1000, 1000.0 + WINDOW_S) == ALWAYS


def test_a_refused_attempt_costs_nothing() -> None:
    budget = RetryBudget(0.0)
    taken(budget, 10 * ALWAYS, 1000.0)
    assert taken(budget, 100, 1000.0 + WINDOW_S) == ALWAYS


def test_a_long_silence_forgets_everything() -> None:
    budget = RetryBudget(0.0)
    taken(budget, ALWAYS, 5.0)
    assert taken(budget, 100, 1e9) == ALWAYS


@example(steps=[(0.0, "take")] * 40, ratio=0.5)
@example(steps=[(0.5, "request")] * 30 + [(0.5, "take")] * 40, ratio=1.0)
@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["request", "take"])), max_size=120),
    ratio=st.floats(0, 1),
)
def test_no_ten_seconds_see_more_than_the_share(steps: list[tuple[float, str]], ratio: float) -> None:
    """Against a plain list of times: buckets of a second may forget up to a second early, never a second late."""
    budget, now_s = RetryBudget(ratio), 100.0
    requests: deque[float] = deque()
    retries: deque[float] = deque()
    for step_s, what in steps:
        now_s += step_s
        if what == "request":
            budget.request(now_s)
            requests.append(now_s)
        else:
            recent = sum(now_s - t < WINDOW_S for t in requests)
            if budget.take(now_s):
                assert sum(now_s - t <= WINDOW_S - 1 for t in retries) < max(ratio * recent, ALWAYS)
                retries.append(now_s)
            else:
                assert sum(now_s - t < WINDOW_S for t in retries) >= ALWAYS
