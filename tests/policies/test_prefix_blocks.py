"""A prompt's beginnings: what two requests share, and where it is found."""

from __future__ import annotations

import json
from itertools import count, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.prefix_blocks import (
    BLOCK_BYTES,
    COARSE_BLOCK_BYTES,
    FINE_BYTES,
    SEARCH_BYTES,
    chain,
    covered_bytes,
    value_at,
)


def shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many of the leading ones are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def whole(length: int) -> int:
    """How many blocks so many bytes have."""
    return next(blocks for blocks in count() if covered_bytes(blocks + 1) > length)


@given(st.integers(0, 40_000), st.binary(max_size=3000), st.binary(max_size=3000), st.integers(0, 9))
@example(alike=FINE_BYTES - 1, a=b"", b=b"", start=0)
@example(alike=FINE_BYTES + COARSE_BLOCK_BYTES, a=b"", b=b"", start=5)
def test_what_begins_alike_shares_its_whole_leading_blocks(alike: int, a: bytes, b: bytes, start: int) -> None:
    same = (bytes(range(251)) * (alike // 251 + 1))[:alike]
    left, right = b"x" * start + same + b"a" + a, b"x" * start + same + b"b" + b
    blocks = chain(left, start, len(left))
    assert shared(blocks, chain(right, start, len(right))) == whole(alike)
    assert blocks == chain(left, start, len(left)), "the same bytes have the same hashes"
    assert len(blocks) == whole(len(left) - start)


def test_a_block_stands_for_all_that_comes_before_it() -> None:
    tail = b"t" * 4 * BLOCK_BYTES
    one, other = (chain(head * BLOCK_BYTES + tail, 0, 5 * BLOCK_BYTES) for head in (b"1", b"2"))
    assert not set(one) & set(other)
    assert not set(chain(tail, 0, len(tail), ("a_tool",))) & set(chain(tail, 0, len(tail)))


@given(st.integers(0, 2 * FINE_BYTES))
def test_what_is_shared_is_told_within_an_eighth(alike: int) -> None:
    told = covered_bytes(whole(alike))
    assert told <= alike < told + max(BLOCK_BYTES, told // 8)
    assert whole(alike) <= 16 + 8 * 5 + 16, "a long prompt has few"


def test_the_same_blocks_lead_a_prompt_however_long_it_is() -> None:
    short, long = (b"p" * size for size in (FINE_BYTES + 100, FINE_BYTES + 3 * COARSE_BLOCK_BYTES + 100))
    fine, both = chain(short, 0, len(short)), chain(long, 0, len(long))
    assert (covered_bytes(len(fine)), len(both)) == (FINE_BYTES, len(fine) + 3)
    assert both[: len(fine)] == fine
    assert len(set(both)) == len(both)
    assert covered_bytes(len(both)) == FINE_BYTES + 3 * COARSE_BLOCK_BYTES


@given(st.integers(0, 2000))
def test_more_blocks_cover_more(blocks: int) -> None:
    assert all(a < b for a, b in pairwise(map(covered_bytes, (blocks, blocks + 1))))


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [1], "model": "m"},
        {"model": "m", "messages": [1]},
        {"model": "messages", "user": 'said "messages": twice', "messages": [1]},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", " : \n")])
def test_the_value_is_found_whatever_comes_before(body: object, separators: tuple[str, str]) -> None:
    raw = json.dumps(body, separators=separators).encode()
    assert raw[value_at(raw, "messages") :].strip().startswith(b"[1]")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b'"messages"', b'{"a":"messages"', b'"messages",' * 100, b" " * SEARCH_BYTES + b'"messages":[1]'],
)
def test_what_is_not_found_begins_with_the_body(raw: bytes) -> None:
    assert value_at(raw, "messages") == 0
