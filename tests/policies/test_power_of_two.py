"""The promise of ``power_of_two``: of two drawn by chance, never the busier one."""

from __future__ import annotations

import random
from collections import Counter

from policies.routing.power_of_two import PowerOfTwo
from policies.types import PoolView, RouteQuery
from tests.fakes.policy_runs import Machine, run
from tests.fakes.policy_views import view

POLICY = PowerOfTwo()


def chosen(of: PoolView, times: int = 400) -> Counter[str]:
    chance, got = random.Random(1), Counter[str]()
    for _ in range(times):
        choice = POLICY.choose(of._replace(seed=chance.getrandbits(64)), RouteQuery())
        assert choice is not None
        got[choice.endpoint_id] += 1
    return got


def test_of_two_the_busier_is_never_taken() -> None:
    assert chosen(view(3, 1)) == {"e1": 400}


def test_the_busiest_of_many_is_never_taken_and_the_idlest_mostly() -> None:
    got = chosen(view(9, 0, 1, 2, 3))
    assert got["e0"] == 0
    assert got.most_common(1)[0][0] == "e1"
    assert got["e1"] < 400, "and not by all: that is what it is for"


def test_load_counts_by_weight() -> None:
    assert chosen(view(3, 1, weights=(4, 1))) == {"e0": 400}


def test_those_that_tie_share() -> None:
    got = chosen(view(2, 2, 2))
    assert min(got[e] for e in ("e0", "e1", "e2")) >= 100


def test_the_reason_tells_both_counts() -> None:
    choice = POLICY.choose(view(3, 1), RouteQuery())
    assert choice is not None
    assert choice.reason == "fewer in flight of two drawn: 1, e0 has 3"


def test_one_endpoint_needs_no_choice() -> None:
    choice = POLICY.choose(view(3, 1, health=("healthy", "ejected")), RouteQuery())
    assert choice == ("e0", "the only one")


def test_a_slow_endpoint_fills_up_and_is_left_alone() -> None:
    got = run(POLICY, {"slow": Machine(2.0), **{f"e{i}": Machine(0.1) for i in range(3)}})
    assert got["slow"] <= 40
