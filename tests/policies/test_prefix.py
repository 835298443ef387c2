"""The promise of ``prefix``: where most of the prompt is held, else where its beginning belongs, within bounds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.routing.prefix import Prefix
from policies.types import Choice, PoolView, RouteQuery
from tests.fakes.policy_views import view

POLICY = Prefix()


def choose(of: PoolView, blocks: tuple[int, ...] = (), **cached: int) -> Choice:
    choice = POLICY.choose(of, RouteQuery(prompt_tokens=1000, blocks=blocks, cached_tokens=cached))
    assert choice is not None
    return choice


def test_the_endpoint_that_holds_most_of_the_prompt() -> None:
    assert choose(view(1, 2, 0), (5, 6), e0=256, e1=768) == ("e1", "holds 768 of the prompt's 1000 tokens")


def test_of_those_that_hold_as_much_the_fewest_in_flight() -> None:
    assert choose(view(2, 1, 0), (5,), e0=512, e1=512).endpoint_id == "e1"


def test_what_nobody_holds_goes_where_its_first_block_belongs() -> None:
    of = view(0, 0, 0, 0)
    first = choose(of, (5, 6, 7))
    assert first.reason == "its beginning's endpoint"
    assert choose(of, (5, 8)).endpoint_id == first.endpoint_id, "a prompt that begins alike"
    assert len({choose(of, (n,)).endpoint_id for n in range(100)}) == 4, "and others elsewhere"


def test_an_owner_that_carries_too_much_is_passed_over_and_the_reason_says_so() -> None:
    second = choose(view(9, 2, 2), (5,), e0=768, e1=256)
    assert second == ("e1", "holds 256 of the prompt's 1000 tokens; what holds 768 is over its bound")
    only = choose(view(9, 2, 2), (5,), e0=768)
    assert only.endpoint_id != "e0"
    assert "endpoint" in only.reason


def test_a_tried_or_unwell_owner_is_nobody() -> None:
    of = view(0, 0, 0, health=("ejected",))
    assert choose(of, (), e0=768, e1=1).endpoint_id == "e1"


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    cached=st.dictionaries(st.sampled_from([f"e{i}" for i in range(6)]), st.integers(1, 900)),
    blocks=st.lists(st.integers(0, 2**64 - 1), max_size=2).map(tuple),
)
def test_no_endpoint_is_chosen_for_a_prefix_that_carries_more_than_its_bound(
    counts: list[int], cached: dict[str, int], blocks: tuple[int, ...]
) -> None:
    choice = choose(view(*counts), blocks, **cached)
    assert counts[int(choice.endpoint_id[1:])] <= 1.25 * sum(counts) / len(counts) + 1


def test_a_prompt_without_a_beginning_goes_to_the_fewest_in_flight() -> None:
    assert choose(view(3, 1)) == ("e1", "no beginning to go by; fewest in flight: 1")


def test_a_beginning_that_all_share_does_not_all_go_to_one_endpoint() -> None:
    counts = [0, 0, 0, 0]
    for _ in range(80):
        counts[int(choose(view(*counts), (5,)).endpoint_id[1:])] += 1
    assert max(counts) <= 1.25 * 20 + 2
    assert Counter(counts)[0] == 0
