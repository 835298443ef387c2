"""When silence means that an engine hangs, and when it only means that it is slow, busy or idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.wedge import COLD_FLOOR_S, COLD_S, FLOOR_S, Slowest, Waiting, is_wedged

USUAL = Slowest(wait_s=0.5, prompt_tokens=1000.0)
SLOW = Slowest(wait_s=5.0, prompt_tokens=1000.0)


def wedged(
    *waits_s: float,
    silent_s: float | None = 50.0,
    tokens: int = 100,
    own: Slowest | None = USUAL,
    peers: Slowest | None = None,
    needed: int = 2,
    unloaded_s: float | None = None,
) -> bool:
    """Whether requests that wait for so long, while nothing came for ``silent_s``, are evidence enough."""
    now_s = 1000.0
    sent = tuple(now_s - wait_s for wait_s in waits_s)
    output_s = None if silent_s is None else now_s - silent_s
    loads_since_s = None if unloaded_s is None else now_s - unloaded_s
    return is_wedged(Waiting(sent, tokens, output_s), own, peers, now_s, needed=needed, loads_since_s=loads_since_s)


def test_several_that_wait_much_longer_than_usual_in_silence_are_certain() -> None:
    assert wedged(2.1, 2.1)
    assert not wedged(1.9, 1.9)


def test_one_that_waits_is_no_evidence_unless_it_is_the_trial() -> None:
    assert not wedged(40.0)
    assert not wedged(40.0, 1.0), "the second has not waited for long"
    assert wedged(40.0, needed=1)


@pytest.mark.parametrize("needed", [1, 2])
def test_of_a_model_that_may_be_loading_nothing_is_concluded(needed: int) -> None:
    waits = (40.0, 40.0)
    assert wedged(*waits, needed=needed, unloaded_s=60.0), "it gave output since"
    assert not wedged(*waits, needed=needed, unloaded_s=50.0)
    assert not wedged(*waits, needed=needed, unloaded_s=1000.0, silent_s=40.0 + COLD_S + 1)
    assert not wedged(*waits, needed=needed, unloaded_s=1000.0, silent_s=None, peers=USUAL)
    assert not wedged(*waits, needed=needed, unloaded_s=1000.0, own=None, peers=USUAL)


def test_an_idle_endpoint_is_not_suspected() -> None:
    assert not wedged()
    assert not wedged(needed=1)


def test_any_output_from_it_shows_that_it_works() -> None:
    assert not wedged(30.0, 30.0, silent_s=1.9)
    assert wedged(30.0, 30.0, silent_s=2.1)


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_an_endpoint_three_times_slower_than_it_ever_was_is_only_slow(slower: float) -> None:
    wait_s = slower * SLOW.wait_s
    assert not wedged(wait_s, wait_s, wait_s, own=SLOW)


def test_a_long_prompt_may_take_in_proportion() -> None:
    assert not wedged(15.0, 15.0, tokens=8000)
    assert wedged(17.0, 17.0, tokens=8000)


def test_a_fast_engine_may_be_silent_for_a_moment() -> None:
    quick = Slowest(0.001, 10.0)
    assert not wedged(FLOOR_S - 0.1, FLOOR_S - 0.1, own=quick, tokens=1)
    assert wedged(FLOOR_S + 0.1, FLOOR_S + 0.1, own=quick, tokens=1)


def test_after_a_long_pause_the_model_may_have_to_be_loaded() -> None:
    assert not wedged(COLD_FLOOR_S - 0.1, COLD_FLOOR_S - 0.1, silent_s=COLD_S + COLD_FLOOR_S)
    assert wedged(COLD_FLOOR_S + 0.1, COLD_FLOOR_S + 0.1, silent_s=COLD_S + COLD_FLOOR_S + 1)


def test_where_nothing_was_ever_measured_nothing_is_concluded() -> None:
    assert not wedged(1e6, 1e6, own=None, silent_s=None)


def test_an_endpoint_that_never_answered_is_judged_by_its_peers_with_more_patience() -> None:
    assert not wedged(9.9, 9.9, own=None, peers=USUAL, silent_s=None)
    assert wedged(10.1, 10.1, own=None, peers=USUAL, silent_s=None)
    assert not wedged(49.0, 49.0, own=None, peers=SLOW, silent_s=None)
    assert wedged(51.0, 51.0, own=None, peers=SLOW, silent_s=None)


def test_the_slowest_fades_and_never_falls_below_the_newest() -> None:
    known = Slowest.after(None, 8.0, 4000)
    for _ in range(1000):
        known = Slowest.after(known, 0.5, 100)
    assert known == Slowest(0.5, 100.0)


@given(waits=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10_000)), min_size=1, max_size=50))
def test_no_recent_wait_of_its_own_would_be_a_sign(waits: list[tuple[float, int]]) -> None:
    known: Slowest | None = None
    for wait_s, tokens in waits:
        known = Slowest.after(known, wait_s, tokens)
    assert not wedged(*[waits[-1][0]] * 5, own=known, tokens=waits[-1][1])
