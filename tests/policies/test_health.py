"""When an endpoint is taken out and when it comes back: the steps, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.health import (
    WINDOW_S,
    HealthRules,
    HealthState,
    drain,
    eject,
    engine_loads,
    may_eject,
    needed_again,
    probe_failed,
    probe_succeeded,
    readmit,
    request_failed,
    request_succeeded,
)

RULES = HealthRules(failures=3, successes=2, eject_s=10.0, eject_max_s=35.0)


def failed(state: HealthState, times: int = 1, now_s: float = 100.0) -> HealthState:
    for _ in range(times):
        state = request_failed(state, RULES, now_s, "broke off")
    return state


def refused(state: HealthState, times: int = 1, rules: HealthRules = RULES) -> HealthState:
    for _ in range(times):
        state = request_failed(state, rules, 100.0, "connect", certain=True)
    return state


def served(state: HealthState, times: int = 1, now_s: float = 100.0) -> HealthState:
    for _ in range(times):
        state = request_succeeded(state, now_s)
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
    state = failed(served(failed(HealthState(), 2)), 2)
    assert state.ejected_until_s is None


def test_a_refused_connection_leaves_no_doubt_so_two_eject() -> None:
    assert refused(HealthState(), 1).ejected_until_s is None
    assert refused(HealthState(), 2).ejected_until_s is not None


@pytest.mark.parametrize(("failures", "needed"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (10, 2)])
def test_two_refused_connections_eject_whatever_else_is_needed(failures: int, needed: int) -> None:
    rules = HealthRules(failures, successes=1, eject_s=10.0, eject_max_s=20.0)
    assert refused(HealthState(), needed - 1, rules).ejected_until_s is None
    assert refused(HealthState(), needed, rules).ejected_until_s is not None


def test_failures_among_successes_eject_once_they_are_half_of_all() -> None:
    state = HealthState()
    for _ in range(6):
        assert state.ejected_until_s is None
        state = failed(served(state))
    assert state.ejected_until_s is not None


def test_many_failures_among_more_successes_eject_nobody() -> None:
    state = HealthState()
    for turn in range(1_000):
        state = failed(served(state, 2, now_s=turn * 0.001), now_s=turn * 0.001)
    assert state.ejected_until_s is None


def test_failures_far_apart_eject_nobody() -> None:
    state = HealthState()
    for turn in range(100):
        state = failed(served(state, now_s=turn * 5.0), now_s=turn * 5.0)
    assert state.ejected_until_s is None


def test_the_window_begins_with_a_failure_and_ends_with_a_success_after_it() -> None:
    assert served(HealthState()).window_s is None
    state = served(failed(HealthState(), now_s=100.0), now_s=100.0 + WINDOW_S)
    assert (state.window_s, state.window_failed, state.window_served) == (100.0, 1, 1)
    assert served(state, now_s=100.1 + WINDOW_S) == HealthState()


def test_missed_probes_in_a_row_eject() -> None:
    assert missed(HealthState(), 2).ejected_until_s is None
    assert missed(HealthState(), 3).ejected_until_s == 110.0


def test_a_good_probe_between_missed_ones_starts_the_count_anew() -> None:
    assert missed(hit(missed(HealthState(), 2)), 2).ejected_until_s is None


def test_good_probes_do_not_excuse_failed_requests() -> None:
    state = failed(hit(failed(HealthState(), 2), 5))
    assert state.ejected_until_s is not None, "an engine that answers probes and hangs on requests (RW-27)"


def test_a_good_request_excuses_missed_probes() -> None:
    assert missed(served(missed(HealthState(), 2)), 2).ejected_until_s is None


@pytest.mark.parametrize(("out", "back"), [(failed, "half_open"), (missed, "healthy")])
def test_nothing_comes_back_before_the_ejection_is_over(out: Callable[..., HealthState], back: str) -> None:
    state = out(HealthState(), 3, now_s=100.0)
    assert hit(state, 50, now_s=109.9).name == "ejected"
    assert hit(state, 2, now_s=110.0).name == back


@pytest.mark.parametrize(("out", "back"), [(failed, "half_open"), (missed, "healthy")])
def test_a_return_needs_as_many_good_probes_as_the_rules_say(out: Callable[..., HealthState], back: str) -> None:
    state = out(HealthState(), 3)
    assert hit(state, 1, now_s=200.0).name == "ejected"
    assert hit(state, 2, now_s=200.0).name == back


@pytest.mark.parametrize(("out", "back"), [(failed, "half_open"), (missed, "healthy")])
def test_one_that_is_needed_again_comes_back_early_if_its_probes_go_well(
    out: Callable[..., HealthState], back: str
) -> None:
    state = out(HealthState(), 3, now_s=100.0)
    assert needed_again(state, RULES, 101.0) == state
    assert needed_again(hit(state, 2, now_s=101.0), RULES, 102.0).name == back
    once = needed_again(hit(state, 1, now_s=101.0), RULES, 102.0)
    assert once.name == "ejected"
    assert hit(once, 1, now_s=103.0).name == back


@pytest.mark.parametrize(
    "state",
    [
        HealthState(),
        hit(failed(HealthState(), 3), 2, now_s=200.0),
        missed(hit(failed(HealthState(), 3), 1, now_s=101.0), 1, now_s=102.0),
        drain(hit(failed(HealthState(), 3), 2, now_s=101.0)),
        engine_loads(HealthState(), 100.0),
    ],
)
def test_to_be_needed_again_changes_nothing_else(state: HealthState) -> None:
    assert needed_again(state, RULES, 103.0) == state


def test_a_missed_probe_during_the_ejection_starts_the_good_ones_anew() -> None:
    out = hit(failed(HealthState(), 3), 1, now_s=200.0)
    assert hit(missed(out, 1, now_s=201.0), 1, now_s=202.0).name == "ejected"


def test_no_time_readmits_by_itself_and_no_success_of_an_old_request() -> None:
    assert served(failed(HealthState(), 3)).name == "ejected"


def test_no_probe_readmits_what_requests_ejected() -> None:
    assert hit(failed(HealthState(), 3), 1_000, now_s=1e6).name == "half_open"


def test_a_request_served_on_trial_readmits_and_forgets() -> None:
    back = served(hit(failed(HealthState(), 3), 2, now_s=200.0), now_s=201.0)
    assert back == HealthState(ejections=1, returned_s=201.0)


def test_one_request_that_fails_on_trial_ejects_for_twice_as_long() -> None:
    again = failed(hit(failed(HealthState(), 3), 2, now_s=200.0), now_s=201.0)
    assert (again.name, again.ejected_until_s) == ("ejected", 221.0)


def test_a_missed_probe_ends_a_trial_and_does_not_double() -> None:
    state = missed(hit(failed(HealthState(), 3), 2, now_s=200.0), 3, now_s=201.0)
    assert (state.name, state.ejections) == ("ejected", 1)
    assert hit(state, 2, now_s=202.0).name == "half_open"


def test_each_ejection_lasts_twice_as_long_up_to_the_longest() -> None:
    state, now_s, lasted_s = failed(HealthState(), 3, 0.0), 0.0, list[float]()
    for _ in range(5):
        assert state.ejected_until_s is not None
        lasted_s.append(state.ejected_until_s - now_s)
        now_s = state.ejected_until_s
        state = failed(hit(state, 2, now_s), 1, now_s)
    assert lasted_s == [10.0, 20.0, 35.0, 35.0, 35.0]


def test_one_soon_after_the_return_lasts_longer_too_however_many_requests_were_served_between() -> None:
    back = served(hit(failed(HealthState(), 3, 0.0), 2, now_s=10.0), 100, now_s=10.0)
    assert failed(back, 3, now_s=44.0).ejected_until_s == 64.0
    assert failed(back, 3, now_s=45.0).ejected_until_s == 55.0


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
    assert served(state) is state
    assert hit(state) is state


# --- loading


def test_an_engine_that_loads_takes_nothing_and_has_not_failed() -> None:
    state = engine_loads(missed(failed(HealthState(), 2), 2), 100.0)
    assert (state.name, state.failures, state.misses, state.ejections) == ("loading", 0, 0, 0)
    assert hit(state).name == "healthy"


def test_an_ejected_engine_that_loads_was_started_anew_so_its_time_is_over() -> None:
    state = engine_loads(failed(HealthState(), 3, now_s=100.0), 101.0)
    assert state.name == "loading"
    assert hit(state, 1, now_s=101.5).name == "ejected", "as many good probes as ever"
    assert hit(state, 2, now_s=101.5).name == "half_open"


def test_one_that_dies_while_it_loads_is_ejected() -> None:
    state = engine_loads(HealthState(), 100.0)
    assert missed(state, 2).name == "loading"
    assert missed(state, 3).name == "ejected"


def test_a_request_that_was_open_does_not_end_the_loading() -> None:
    assert served(engine_loads(failed(HealthState()), 100.0)).name == "loading"


# --- the operator


STATES = [
    HealthState(),
    failed(HealthState(), 3),
    hit(failed(HealthState(), 3), 2, 200.0),
    engine_loads(HealthState(), 1.0),
]


@pytest.mark.parametrize("state", STATES)
def test_nothing_but_the_operator_ends_a_drain(state: HealthState) -> None:
    drained = drain(state)
    for what in STEPS:
        for _ in range(5):
            drained = step(what, drained, 300.0)
            assert drained.name == "draining"
            assert drained.reason == "drained by an operator"
    assert readmit().name == "healthy"


def test_a_drained_endpoint_comes_back_beneath_its_drain() -> None:
    state = served(hit(failed(drain(HealthState()), 3), 2, 200.0), now_s=200.0)
    assert (state.name, state.ejected_until_s) == ("draining", None)


# --- the floor


@pytest.mark.parametrize(
    ("others", "endpoints", "floor", "can"),
    [
        (0, 1, 1, False),
        (1, 2, 1, True),
        (0, 2, 1, False),
        (2, 3, 2, True),
        (1, 3, 2, False),
        (2, 4, 0.5, True),
        (1, 4, 0.5, False),
        (2, 5, 0.5, False),
        (0, 5, 0.001, False),
        (5, 5, 100, False),
    ],
)
def test_a_pool_keeps_its_floor(others: int, endpoints: int, floor: float, can: bool) -> None:
    assert may_eject(others, endpoints, floor) is can


def step(what: str, state: HealthState, now_s: float) -> HealthState:
    match what:
        case "served":
            return served(state, now_s=now_s)
        case "loads":
            return engine_loads(state, now_s)
        case "failed":
            return failed(state, now_s=now_s)
        case "missed":
            return missed(state, now_s=now_s)
        case _:
            return hit(state, now_s=now_s)


STEPS = ("served", "failed", "missed", "hit", "loads")


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.floats(0, 20)), max_size=80))
def test_every_ejection_is_within_its_bounds_and_every_return_is_due(steps: list[tuple[str, float]]) -> None:
    state, now_s = HealthState(), 0.0
    for what, after_s in steps:
        now_s += after_s
        before = state
        state = step(what, state, now_s)
        if before.name != "ejected" and state.name == "ejected" and before.ejected_until_s is None:
            assert what in ("failed", "missed")
        if state.ejections > before.ejections:
            assert state.ejected_until_s is not None
            assert RULES.eject_s - 1e-6 <= state.ejected_until_s - now_s <= RULES.eject_max_s + 1e-6
        elif before.ejected_until_s is not None and state.ejected_until_s is None:
            assert now_s >= before.ejected_until_s
            assert what == ("hit" if before.by_probes else "served")
            assert before.by_probes or before.on_trial
        if state.on_trial and not before.on_trial:
            assert before.ejected_until_s is not None
            assert (what, now_s >= before.ejected_until_s) == ("hit", True)
        assert not (state.on_trial and state.ejected_until_s is None)


@pytest.mark.parametrize("ejections", [0, 31, 32])
def test_any_number_of_ejections_still_gives_a_time(ejections: int) -> None:
    out = eject(HealthState(ejections=ejections), RULES, 0.0, "x")
    assert out.ejected_until_s is not None
    assert out.ejected_until_s <= RULES.eject_max_s
    assert out.ejections <= 32
