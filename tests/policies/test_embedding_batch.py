"""Which embedding requests wait, and for whom."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.embedding_batch import MOST_BODY_BYTES, MOST_STRETCH, BatchRules, Extent

SIZES = st.lists(st.integers(1, 200), min_size=1, max_size=12)
RULES = st.builds(BatchRules, inputs=st.integers(2, 16), tokens=st.integers(1, 2000))


def gathered(rules: BatchRules, requests: list[list[int]]) -> list[list[list[int]]]:
    """The batches that requests with inputs of these tokens make if none of them is sent before its time."""
    batches: list[list[list[int]]] = []
    waiting: list[int] = []
    for tokens in requests:
        extent = Extent.of(tokens)
        if not rules.may_wait(extent, 100):
            continue
        place = rules.place([Extent.of(list(chain(*batches[at]))) for at in waiting], extent)
        if place is None:
            waiting.append(len(batches))
            batches.append([tokens])
            place = len(waiting) - 1
        else:
            batches[waiting[place]].append(tokens)
        if rules.is_full(Extent.of(list(chain(*batches[waiting[place]])))):
            del waiting[place]
    return batches


@settings(deadline=None)
@given(rules=RULES, requests=st.lists(SIZES, max_size=30))
def test_a_batch_keeps_every_bound(rules: BatchRules, requests: list[list[int]]) -> None:
    for batch in gathered(rules, requests):
        tokens = list(chain(*batch))
        assert len(tokens) <= rules.inputs
        assert sum(tokens) <= rules.tokens
        assert max(tokens) <= MOST_STRETCH * min(tokens)
        assert all(len(request) <= rules.inputs / 2 for request in batch)


@settings(deadline=None)
@given(rules=RULES, requests=st.lists(SIZES, max_size=30))
def test_whoever_may_wait_is_in_one_batch_and_keeps_its_turn(rules: BatchRules, requests: list[list[int]]) -> None:
    able = [request for request in requests if rules.may_wait(Extent.of(request), 100)]
    batches = gathered(rules, requests)
    assert sorted(id(request) for batch in batches for request in batch) == sorted(map(id, able))
    turns = {id(request): turn for turn, request in enumerate(requests)}
    for batch in batches:
        assert [turns[id(request)] for request in batch] == sorted(turns[id(request)] for request in batch)


@settings(deadline=None)
@given(rules=RULES, waiting=st.lists(SIZES, max_size=6), request=SIZES)
def test_a_request_begins_a_batch_only_if_none_can_take_it(
    rules: BatchRules, waiting: list[list[int]], request: list[int]
) -> None:
    place = rules.place([Extent.of(tokens) for tokens in waiting], Extent.of(request))
    fits = [
        len(both) <= rules.inputs and sum(both) <= rules.tokens and max(both) <= MOST_STRETCH * min(both)
        for both in (tokens + request for tokens in waiting)
    ]
    assert place == (fits.index(True) if any(fits) else None)


@settings(deadline=None)
@given(a=SIZES, b=SIZES)
def test_two_extents_are_the_extent_of_both(a: list[int], b: list[int]) -> None:
    assert Extent.of(a).plus(Extent.of(b)) == Extent.of(a + b)


@pytest.mark.parametrize(
    ("tokens", "body_bytes", "waits"),
    [
        ([5] * 4, 100, True),
        ([5] * 5, 100, False),  # more than half of a batch
        ([5], MOST_BODY_BYTES, True),
        ([5], MOST_BODY_BYTES + 1, False),
        ([100], 100, True),
        ([101], 100, False),  # more tokens than a batch
        ([2, 8], 100, True),
        ([2, 9], 100, False),  # of two lengths by itself
    ],
)
def test_a_large_or_odd_request_does_not_wait(tokens: list[int], body_bytes: int, waits: bool) -> None:
    assert BatchRules(8, 100).may_wait(Extent.of(tokens), body_bytes) is waits


def test_a_batch_is_full_at_its_inputs_or_its_tokens() -> None:
    rules = BatchRules(4, 100)
    assert not rules.is_full(Extent.of([33, 33, 33]))
    assert rules.is_full(Extent.of([1, 1, 1, 1]))
    assert rules.is_full(Extent.of([50, 50]))
