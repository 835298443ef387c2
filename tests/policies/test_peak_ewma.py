"""The promise of ``peak_ewma``: away from slow endpoints at once, back in time, and never after what nobody knows."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from policies.routing.peak_ewma import Peak, PeakEwma
from policies.types import Answered, FirstOutput, PoolView, RouteQuery
from tests.fakes.policy_runs import Machine, run
from tests.fakes.policy_views import view, with_fields

POLICY = PeakEwma(fade_s=10.0)


def learnt(*samples: tuple[float, float]) -> Peak:
    """What first outputs teach that came at these times and took so long."""
    known: Peak | None = None
    for at_s, took_s in samples:
        known = POLICY.first_output(known, FirstOutput(at_s - took_s, at_s, 10, 10, 0, 0, 0, 1))
    assert known is not None
    return known


def chosen(of: PoolView, times: int = 400) -> Counter[str]:
    chance, got = random.Random(1), Counter[str]()
    for _ in range(times):
        choice = POLICY.choose(of._replace(seed=chance.getrandbits(64)), RouteQuery())
        assert choice is not None
        got[choice.endpoint_id] += 1
    return got


def knowing(*peaks: Peak | None, now_s: float, in_flight: tuple[int, ...] = ()) -> PoolView:
    return with_fields(view(*(in_flight or (0,) * len(peaks))), learnt=peaks)._replace(now_s=now_s)


def test_a_slower_answer_counts_at_once_and_faster_ones_wear_it_down() -> None:
    known = learnt((1.0, 0.1), (2.0, 3.0))
    assert known == (3.0, 2.0)
    later = learnt((1.0, 0.1), (2.0, 3.0), (12.0, 0.1))
    assert later.ttft_s == pytest.approx(0.1 + 2.9 / 2.718, abs=0.01)


def test_latency_times_load_decides() -> None:
    fast, slow = learnt((1.0, 0.1)), learnt((1.0, 0.25))
    assert chosen(knowing(fast, slow, now_s=1.0)) == {"e0": 400}
    assert chosen(knowing(fast, slow, now_s=1.0, in_flight=(1, 0))) == {"e0": 400}
    assert chosen(knowing(fast, slow, now_s=1.0, in_flight=(2, 0))) == {"e1": 400}


def test_a_slow_endpoint_is_tried_again_as_its_slowness_fades() -> None:
    slow = learnt((0.0, 5.0))
    for now_s, tried in ((1.0, False), (60.0, True)):
        fresh = learnt((now_s, 0.1))
        got = chosen(knowing(slow, fresh, fresh, now_s=now_s, in_flight=(0, 1, 2)))
        assert (got["e0"] > 0) is tried


def test_silence_makes_no_endpoint_fast() -> None:
    now_s = 100.0
    was_fast, known = learnt((0.0, 0.001)), learnt((now_s, 0.5))
    got = chosen(knowing(was_fast, known, known, known, now_s=now_s, in_flight=(0, 1, 2, 3)))
    assert got["e0"] < 400 * 0.4, "it would be taken whenever it is drawn, half the time, if it still counted as fast"


def test_an_endpoint_that_nothing_is_known_of_is_like_the_others() -> None:
    known = learnt((1.0, 0.5))
    new = knowing(None, known, known, known, now_s=1.0, in_flight=(0, 3, 3, 3))
    assert 0 < chosen(new)["e0"] <= 400 * 0.3
    assert chosen(knowing(None, known, now_s=1.0, in_flight=(6, 3)))["e0"] == 0, "its own load counts"


def test_where_nothing_is_known_the_load_decides() -> None:
    assert chosen(knowing(None, None, now_s=1.0, in_flight=(1, 0))) == {"e1": 400}


def test_failures_teach_nothing_and_attract_nobody() -> None:
    got = run(POLICY, {**{f"e{i}": Machine() for i in range(3)}, "broken": Machine(fails=True)})
    assert got["broken"] <= 400 / 4 * 1.2, "an endpoint with nothing open would get nearly all by that"


def test_a_whole_answer_teaches_nothing_that_its_first_output_did_not() -> None:
    known = learnt((1.0, 0.5))
    assert POLICY.answered(known, Answered(0.0, 9.0, 1.0, 10, 0, 50, 0.1)) is known
    assert POLICY.answered(None, Answered(0.0, 9.0, None, None, None, 0, None)) is None


def test_an_endpoint_five_times_slower_gets_little_but_is_not_forgotten() -> None:
    got = run(POLICY, {"slow": Machine(1.0), **{f"e{i}": Machine(0.2) for i in range(3)}}, requests=1000)
    assert 5 <= got["slow"] <= 100
