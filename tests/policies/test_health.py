"""When an endpoint is taken out and when it comes back: the steps, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.health import (
    HealthRules,
    HealthState,
    eject,
    probe_failed,
    probe_succeeded,
    request_failed,
    request_succeeded,
)

RULES = HealthRules(failures=3, successes=2, eject_s=10.0, eject_max_s=35.0)


def failed(state: HealthState, times: int = 1, now_s: float = 100.0) -> HealthState:
    for _ in range(times):
        state = request_failed(state, RULES, now_s, "broke off")
    return state


def missed(state: HealthState, times: int = 1, now_s: float = 100.0) -> HealthState:
    for _ in range(times):
        state = probe_failed(state, RULES, now_s, "no answer")
    return state


def hit(state: HealthState, times: int = 1, now_s: float = 100.0) -> HealthState:
    for _ in range(times):
        state = probe_succeeded(state, RULES, now_s)
    return state


def test_failures_in_a_row_eject() -> None:
    assert failed(HealthState(), 2).ejected_until_s is None
    out = failed(HealthState(), 3)
    assert out.ejected_until_s == 110.0
    assert out.reason == "broke off"


def test_a_success_between_failures_starts_the_count_anew() -> None:
    state = failed(request_succeeded(failed(HealthState(), 2)), 2)
    assert state.ejected_until_s is None


def test_missed_probes_in_a_row_eject() -> None:
    assert missed(HealthState(), 2).ejected_until_s is None
    assert missed(HealthState(), 3).ejected_until_s == 110.0


def test_a_good_probe_between_missed_ones_starts_the_count_anew() -> None:
    assert missed(hit(missed(HealthState(), 2)), 2).ejected_until_s is None


def test_good_probes_do_not_excuse_failed_requests() -> None:
    state = failed(hit(failed(HealthState(), 2), 5))
    assert state.ejected_until_s is not None, "an engine that answers probes and hangs on requests (RW-27)"


def test_a_good_request_excuses_missed_probes() -> None:
    assert missed(request_succeeded(missed(HealthState(), 2)), 2).ejected_until_s is None


def test_readmission_waits_until_the_ejection_is_over() -> None:
    out = failed(HealthState(), 3, now_s=100.0)
    assert hit(out, 50, now_s=109.9).ejected_until_s == 110.0
    assert hit(out, 2, now_s=110.0).ejected_until_s is None


def test_readmission_needs_as_many_good_probes_as_the_rules_say() -> None:
    out = failed(HealthState(), 3)
    assert hit(out, 1, now_s=200.0).ejected_until_s is not None
    assert hit(out, 2, now_s=200.0).ejected_until_s is None


def test_a_missed_probe_during_the_ejection_starts_the_good_ones_anew() -> None:
    out = hit(failed(HealthState(), 3), 1, now_s=200.0)
    assert hit(missed(out, 1, now_s=201.0), 1, now_s=202.0).ejected_until_s is not None


def test_no_time_readmits_by_itself_and_no_success_of_an_old_request() -> None:
    out = failed(HealthState(), 3)
    assert request_succeeded(out).ejected_until_s is not None


def test_readmission_forgets_the_reason_and_the_counts() -> None:
    back = hit(failed(HealthState(), 3), 2, now_s=200.0)
    assert (back.reason, back.failures, back.misses, back.hits) == ("", 0, 0, 0)


def test_each_ejection_lasts_twice_as_long_up_to_the_longest() -> None:
    state, now_s, lasted_s = HealthState(), 0.0, list[float]()
    for _ in range(5):
        state = failed(state, 3, now_s)
        assert state.ejected_until_s is not None
        lasted_s.append(state.ejected_until_s - now_s)
        now_s = state.ejected_until_s
        state = hit(state, 2, now_s)
    assert lasted_s == [10.0, 20.0, 35.0, 35.0, 35.0]


def test_a_request_served_well_starts_the_doubling_anew() -> None:
    back = hit(failed(HealthState(), 3, 0.0), 2, now_s=10.0)
    again = failed(request_succeeded(back), 3, now_s=50.0)
    assert again.ejected_until_s == 60.0


def test_a_request_that_was_open_when_its_endpoint_was_ejected_does_not_start_the_doubling_anew() -> None:
    out = request_succeeded(failed(HealthState(), 3, 0.0))
    again = failed(hit(out, 2, now_s=10.0), 3, now_s=50.0)
    assert again.ejected_until_s == 70.0


def test_an_ejected_endpoint_is_not_ejected_for_longer_by_what_fails_meanwhile() -> None:
    out = failed(HealthState(), 3, now_s=100.0)
    later = missed(failed(out, 10, now_s=105.0), 10, now_s=106.0)
    assert later.ejected_until_s == 110.0
    assert later.ejections == 1


def test_an_endpoint_can_be_ejected_at_once() -> None:
    out = eject(HealthState(), RULES, 100.0, "credential refused")
    assert (out.ejected_until_s, out.reason) == (110.0, "credential refused")


def test_nothing_to_change_makes_no_new_state() -> None:
    state = HealthState()
    assert request_succeeded(state) is state
    assert hit(state) is state


def step(what: str, state: HealthState, now_s: float) -> HealthState:
    match what:
        case "served":
            return request_succeeded(state)
        case "failed":
            return failed(state, now_s=now_s)
        case "missed":
            return missed(state, now_s=now_s)
        case _:
            return hit(state, now_s=now_s)


STEPS = ("served", "failed", "missed", "hit")


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.floats(0, 20)), max_size=80))
def test_every_ejection_is_within_its_bounds_and_every_return_is_due(steps: list[tuple[str, float]]) -> None:
    state, now_s = HealthState(), 0.0
    for what, after_s in steps:
        now_s += after_s
        before = state
        state = step(what, state, now_s)
        if before.ejected_until_s is None and state.ejected_until_s is not None:
            assert what in ("failed", "missed")
            assert RULES.eject_s - 1e-6 <= state.ejected_until_s - now_s <= RULES.eject_max_s + 1e-6
        elif before.ejected_until_s is not None and state.ejected_until_s is None:
            assert what == "hit"
            assert now_s >= before.ejected_until_s
        elif before.ejected_until_s is not None:
            assert state.ejected_until_s == before.ejected_until_s


@pytest.mark.parametrize("ejections", [0, 31, 32])
def test_any_number_of_ejections_still_gives_a_time(ejections: int) -> None:
    out = eject(HealthState(ejections=ejections), RULES, 0.0, "x")
    assert out.ejected_until_s is not None
    assert out.ejected_until_s <= RULES.eject_max_s
    assert out.ejections <= 32
