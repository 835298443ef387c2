"""The promise of ``latency``: the first token soonest, in seconds, by what each endpoint has shown."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine_speed import EngineSpeed, first_output_s
from policies.routing.latency import Latency
from policies.types import Answered, EndpointSnapshot, FirstOutput, PoolView, RouteQuery
from tests.fakes.policy_runs import Machine, run

NOW_S = 100.0
QUICK = EngineSpeed(base_s=0.1, token_s=50e-6, last_first_s=99.0, pace_s=1e-7, output_tokens=200.0, firsts=9)
SLOW = QUICK._replace(token_s=500e-6)
ASKED = RouteQuery(prompt_tokens=1000)


def endpoint(name: str, learnt: EngineSpeed | None = QUICK, pending_tokens: int = 0, **more: Any) -> EndpointSnapshot:
    """One that is known for long; with ``pending_tokens`` it has one prompt of so many, sent just now."""
    waits: dict[str, Any] = {}
    if pending_tokens:
        waits = {"pending": 1, "in_flight": 1, "oldest_s": NOW_S, "oldest_tokens": pending_tokens}
    known = EndpointSnapshot(name, "healthy", 0, answers=9, learnt=learnt, pending_tokens=pending_tokens)
    return known._replace(**(waits | more))


def pool(*endpoints: EndpointSnapshot, seed: int = 1 << 32) -> PoolView:
    return PoolView(NOW_S, 1, endpoints, seed)


def chosen(*endpoints: EndpointSnapshot, query: RouteQuery = ASKED, seed: int = 1 << 32) -> str:
    choice = Latency().choose(pool(*endpoints, seed=seed), query)
    assert choice is not None
    return choice.endpoint_id


def share(*endpoints: EndpointSnapshot, query: RouteQuery = ASKED, turns: int = 1000) -> Counter[str]:
    chance = Random(7)
    return Counter(chosen(*endpoints, query=query, seed=chance.getrandbits(64)) for _ in range(turns))


# --- seconds


def test_the_shorter_queue_is_the_one_that_takes_fewer_seconds() -> None:
    one_long = endpoint("long", pending_tokens=30_000)
    many_short = endpoint("short", pending_tokens=2000, pending=5, in_flight=5, oldest_tokens=400)
    assert chosen(one_long, many_short) == "short"


def test_a_slow_machine_needs_to_be_much_emptier() -> None:
    assert chosen(endpoint("quick", pending_tokens=4000), endpoint("slow", SLOW)) == "quick"
    assert chosen(endpoint("quick", pending_tokens=40_000), endpoint("slow", SLOW)) == "slow"


def test_a_cached_prefix_is_worth_the_time_it_saves_and_no_more() -> None:
    held = RouteQuery(prompt_tokens=8000, cached_tokens={"holder": 6000})
    assert chosen(endpoint("other"), endpoint("holder", pending_tokens=5000), query=held) == "holder"
    assert chosen(endpoint("other"), endpoint("holder", pending_tokens=9000), query=held) == "other"


def test_what_must_be_done_of_the_oldest_prompt_is_not_ahead_any_more() -> None:
    early = endpoint("early", pending_tokens=6000, oldest_s=NOW_S - 0.3)
    late = endpoint("late", pending_tokens=6000)
    assert chosen(late, early) == "early"


def test_an_oldest_prompt_is_never_done_before_its_first_output() -> None:
    stuck = endpoint("stuck", pending_tokens=60_000, oldest_s=NOW_S - 50.0)
    assert chosen(stuck, endpoint("idle")) == "idle"


# --- pace and targets


def test_of_two_that_give_the_first_token_alike_the_one_with_the_better_pace_is_taken() -> None:
    crowded = endpoint("crowded", in_flight=60, held_tokens=400_000)
    assert chosen(crowded, endpoint("calm")) == "calm"


def test_a_pace_far_within_its_target_hardly_matters() -> None:
    some = endpoint("some", in_flight=3, held_tokens=20_000)
    assert chosen(some, endpoint("calm", pending_tokens=1000)) == "some"


def test_a_pace_that_misses_its_target_is_worth_waiting_to_avoid() -> None:
    crawling = endpoint("crawling", QUICK._replace(pace_s=3e-6))
    assert chosen(crawling, endpoint("behind", pending_tokens=15_000)) == "behind"


# --- what is not known


def test_while_nothing_is_known_of_any_each_is_asked_once_and_nobody_twice() -> None:
    idle = [endpoint(f"e{i}", None, answers=0) for i in range(4)]
    assert set(share(*idle)) == {"e0", "e1", "e2", "e3"}
    asked = endpoint("e0", None, 100, answers=0)
    assert "e0" not in share(asked, *idle[1:])


def test_a_stranger_is_taken_for_the_mean_of_the_others_and_never_for_the_quickest() -> None:
    stranger = endpoint("stranger", None, answers=0)
    assert share(endpoint("quick"), endpoint("slow", SLOW), stranger)["quick"] > 950
    assert chosen(endpoint("slow", SLOW), endpoint("busy", pending_tokens=90_000), stranger) == "stranger"


def test_an_endpoint_whose_pace_is_not_known_yet_has_that_of_the_others() -> None:
    fresh = endpoint("fresh", QUICK._replace(pace_s=0.0), in_flight=60, held_tokens=700_000)
    assert chosen(fresh, endpoint("calm", pending_tokens=2000)) == "calm"


def test_a_new_endpoint_gets_one_request_at_a_time_until_it_has_answered_three() -> None:
    busy = endpoint("busy", pending_tokens=90_000)
    assert chosen(busy, endpoint("new", pending_tokens=10, answers=2)) == "busy"
    assert chosen(busy, endpoint("new", pending_tokens=10, answers=3)) == "new"


def test_new_endpoints_that_all_have_their_request_still_serve_and_spread() -> None:
    full = [endpoint(f"e{i}", None, 100, answers=0) for i in range(3)]
    assert min(share(*full)[f"e{i}"] for i in range(3)) > 250


# --- what fails


@pytest.mark.parametrize("others", [1, 3])
def test_an_endpoint_that_fails_at_once_draws_no_traffic(others: int) -> None:
    well = {f"e{i}": Machine(ttft_s=0.5) for i in range(others)}
    got = run(Latency(), {"bad": Machine(fails=True), **well}, requests=2000)
    assert got["bad"] < 60, got


def test_an_endpoint_that_did_well_and_then_fails_at_once_draws_no_traffic() -> None:
    failing = endpoint("failing", fruitless=30)
    assert "failing" not in share(failing, endpoint("busy", pending_tokens=20_000))
    assert "failing" not in share(failing, endpoint("busy", None, pending_tokens=20_000, answers=0))


def test_a_few_requests_without_an_answer_change_nothing() -> None:
    """A client's own mistakes end like this, too."""
    assert chosen(endpoint("e", fruitless=2), endpoint("busy", pending_tokens=2000)) == "e"


def test_where_all_fail_all_are_tried() -> None:
    failing = [endpoint(f"e{i}", learnt, answers=0, fruitless=9) for i, learnt in enumerate((None, QUICK, None))]
    assert len(share(*failing)) == 3


def test_an_endpoint_that_fails_is_asked_again_when_it_gave_nothing_for_long() -> None:
    failing = endpoint("failing", QUICK._replace(last_first_s=NOW_S - 60.0), fruitless=1000)
    assert 50 <= share(endpoint("busy", pending_tokens=20_000), failing, turns=5000)["failing"] <= 150


# --- spreading


def test_requests_that_nothing_is_known_of_go_where_fewest_wait() -> None:
    waits: dict[str, Any] = {"pending": 3, "in_flight": 3, "oldest_s": NOW_S}
    fewer = endpoint("e1", **waits)._replace(pending=2)
    assert chosen(endpoint("e0", **waits), fewer, query=RouteQuery()) == "e1"


def test_those_within_two_percent_of_the_best_share_the_traffic_evenly() -> None:
    counts = share(endpoint("a"), endpoint("b", QUICK._replace(base_s=0.101)), endpoint("c", SLOW))
    assert set(counts) == {"a", "b"}
    assert abs(counts["a"] - counts["b"]) < 150


def test_an_idle_endpoint_that_was_long_silent_is_asked_again_now_and_then() -> None:
    silent = endpoint("silent", SLOW._replace(last_first_s=NOW_S - 60.0))
    counts = share(endpoint("quick"), silent, turns=5000)
    assert 50 <= counts["silent"] <= 150
    assert "silent" not in share(endpoint("quick"), silent._replace(pending=1, oldest_s=NOW_S - 5, pending_tokens=10))


def test_one_that_would_have_to_load_the_model_is_not_asked_again_for_its_silence_alone() -> None:
    silent = endpoint("silent", QUICK._replace(last_first_s=NOW_S - 60.0), load_penalty_s=5.0)
    assert "silent" not in share(endpoint("heard"), silent, turns=2000)


@pytest.mark.parametrize("seed", range(0, 1 << 22, 1 << 16))
def test_of_many_a_sample_is_looked_at_that_has_the_holders_and_an_empty_one(seed: int) -> None:
    crowd = [endpoint(f"e{i}", pending_tokens=50_000 + i) for i in range(40)]
    crowd[31] = endpoint("empty")
    assert chosen(*crowd, seed=seed | 1 << 32) == "empty"
    held = RouteQuery(prompt_tokens=90_000, cached_tokens={"e7": 512, "e9": 89_000, "gone": 90_000})
    assert chosen(*crowd, query=held, seed=seed | 1 << 32) == "e9"


@pytest.mark.parametrize("seed", range(0, 1 << 22, 1 << 18))
def test_of_many_those_that_hold_most_of_the_prompt_are_among_those_that_may_be_chosen(seed: int) -> None:
    crowd = [endpoint(f"e{i}", pending_tokens=50_000 + i) for i in range(40)]
    cached_tokens = {"e1": 89_900, "e2": 89_900, "gone": 89_900, "e9": 89_000}
    held = RouteQuery(frozenset({"e1", "e2"}), prompt_tokens=90_000, cached_tokens=cached_tokens)
    assert chosen(*crowd, query=held, seed=seed | 1 << 32) == "e9"


def test_of_many_alike_none_is_left_out() -> None:
    assert len(share(*[endpoint(f"e{i}") for i in range(40)], turns=3000)) == 40


def test_what_all_hold_tells_none_of_them_from_another() -> None:
    crowd = [endpoint(f"e{i}", pending_tokens=20_000) for i in range(40)]
    everywhere = RouteQuery(prompt_tokens=8000, cached_tokens={f"e{i}": 6000 for i in range(40)})
    assert len(share(*crowd, query=everywhere, turns=3000)) == 40


@settings(deadline=None)
@given(data=st.data())
def test_whatever_is_known_or_not_an_eligible_endpoint_is_chosen(data: st.DataObject) -> None:
    def any_endpoint(name: str) -> EndpointSnapshot:
        tokens = data.draw(st.integers(0, 100_000))
        learnt = data.draw(st.sampled_from([None, EngineSpeed(), QUICK, SLOW, QUICK._replace(pace_s=0.0)]))
        drawn = endpoint(name, learnt, tokens, answers=data.draw(st.integers(0, 5)))
        return drawn._replace(health=data.draw(st.sampled_from(["healthy", "ejected"])))

    endpoints = [any_endpoint(f"e{i}") for i in range(data.draw(st.sampled_from([1, 3, 20])))]
    query = RouteQuery(
        prompt_tokens=data.draw(st.integers(0, 100_000)), cached_tokens={"e1": data.draw(st.integers(1, 200_000))}
    )
    choice = Latency().choose(pool(*endpoints, seed=data.draw(st.integers(0, (1 << 64) - 1))), query)
    able = {e.endpoint_id for e in endpoints if e.health == "healthy"}
    assert choice is None if not able else choice is not None and choice.endpoint_id in able


# --- learning, and the words


def test_it_learns_which_machine_is_slow_and_that_it_has_become_quick() -> None:
    policy = Latency()
    learnt: dict[str, EngineSpeed | None] = {"a": None, "b": None}

    def teach(name: str, token_s: float, from_s: float) -> None:
        chance = Random(3)
        for turn in range(60):
            tokens = chance.randrange(100, 4000)
            sent_s = from_s + turn
            first_s = sent_s + 0.1 + token_s * tokens
            learnt[name] = policy.first_output(learnt[name], FirstOutput(sent_s, first_s, tokens, tokens, 0, 0, 0, 1))
            learnt[name] = policy.answered(learnt[name], Answered(sent_s, first_s + 1, first_s, None, None, 100, 0.01))

    def both() -> Counter[str]:
        return share(endpoint("a", learnt["a"]), endpoint("b", learnt["b"]), turns=50)

    teach("a", 50e-6, 40.0)
    teach("b", 200e-6, 40.0)
    assert set(both()) == {"a"}
    teach("b", 20e-6, 100.0)
    assert set(both()) == {"b"}


def test_the_reason_tells_the_figures() -> None:
    query = RouteQuery(prompt_tokens=8000, cached_tokens={"e": 3000})
    choice = Latency().choose(pool(endpoint("e", pending_tokens=1200)), query)
    assert choice is not None
    assert choice.reason == "expects its first token in 0.41 s: 1,200 tokens ahead, 3,000 of 8,000 cached"


def test_its_targets_are_the_pools() -> None:
    near = endpoint("near", in_flight=40, held_tokens=400_000)
    late = endpoint("late", pending_tokens=30_000)
    strict_pace, strict_first = Latency(ttft_slo_s=10.0, itl_slo_s=0.03), Latency(ttft_slo_s=0.5, itl_slo_s=1.0)
    chosen_by = [policy.choose(pool(near, late), ASKED) for policy in (strict_pace, strict_first)]
    assert [choice and choice.endpoint_id for choice in chosen_by] == ["late", "near"]


@pytest.mark.parametrize(
    "there",
    [
        endpoint("e"),
        endpoint("e", SLOW, pending_tokens=4000),
        endpoint("e", pending_tokens=4000, oldest_s=NOW_S - 0.25),
        endpoint("e", pending_tokens=4000, oldest_s=NOW_S - 60.0),
        endpoint("e", in_flight=5, slots=4, held_tokens=9000),
        endpoint("e", load_penalty_s=3.0),
    ],
)
def test_who_asks_about_one_endpoint_is_told_what_the_choice_goes_by(there: EndpointSnapshot) -> None:
    query = RouteQuery(prompt_tokens=2000, cached_tokens={"e": 500})
    choice = Latency().choose(pool(there), query)
    assert choice is not None
    assert there.learnt is not None
    assert f"in {first_output_s(there.learnt, there, query, NOW_S):.2f} s" in choice.reason
