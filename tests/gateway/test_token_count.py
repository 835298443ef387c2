"""A stream broken off goes on with the tokens that its limit leaves, whatever its text's own number of tokens is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.fakes.gateway import running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.resuming import WITH_USAGE, broken_at_a, pool, usage_of
from tests.fakes.scripted import ScriptedUpstream
from tests.fakes.storyteller import PROMPT_TOKENS, storyteller

Count = Callable[[str], int]  # of the tokens of a text


def in_text(text: str) -> int:
    """As byte-pair tokenizers split: the last of several line ends belongs to what follows it."""
    return len(re.findall(r"\n+(?!\S)|\n| ?\w+|\W", text))


def with_a_mark(text: str) -> int:
    """As tokenizers that begin every text with a mark, which joins with a word but not with another space."""
    return text.startswith(" ") + len(re.findall(r" ?\w+|\W", text))


def with_line_ends(text: str) -> int:
    """As tokenizers that have full stops with the line ends after them."""
    return len(re.findall(r" ?\w+|[^\w\s]+\n*|\s+", text))


async def resumed(tokens: list[str], limit: int, breaks_after: int, joins: int = 1, count: Count = in_text) -> Reply:
    async with (
        ScriptedUpstream(storyteller(tokens, breaks_after=breaks_after, joins=joins, count=count)) as a,
        ScriptedUpstream(storyteller(tokens, count=count)) as b,
        running_gateway(pool(a.url, b.url, engine="vllm")) as gw,
    ):
        return await broken_at_a(gw, r0(max_tokens=limit, stream_options=WITH_USAGE))


def assert_whole(reply: Reply, tokens: list[str], limit: int) -> None:
    assert reply.content() == "".join(tokens[:limit])
    assert reply.finishes() == ["length"]
    assert usage_of(reply) == (PROMPT_TOKENS, limit, PROMPT_TOKENS + limit)


LIST = ["1", ".", " Red", ".", "\n\n", "2", ".", " Blue", ".", "\n\n", "3", ".", " Green", "."]


@pytest.mark.parametrize("cut", range(1, 12))
async def test_a_token_whose_text_is_two_to_the_tokenizer_counts_once(cut: int) -> None:
    assert in_text("".join(LIST)) == len(LIST) + 2
    assert_whole(await resumed(LIST, 12, cut), LIST, 12)


@pytest.mark.parametrize("cut", range(1, 9))
async def test_white_space_that_was_part_of_a_token_and_comes_again_counts_once(cut: int) -> None:
    tokens = ["1", ".", " Red", ".\n\n", "2", ".", " Blue", ".\n\n", "3", ".", " Green"]
    assert_whole(await resumed(tokens, 10, cut, count=with_line_ends), tokens, 10)


@pytest.mark.parametrize("cut", range(1, 6))
async def test_chunks_of_several_tokens_are_counted_by_their_tokens(cut: int) -> None:
    tokens = ["1", ":", " Red", ".", "1", "\n\n", "2", ":", " Blue", ".", "\n", "3", ":", " Green"]
    assert_whole(await resumed(tokens, 13, cut, joins=2), tokens, 13)


@pytest.mark.parametrize("cut", range(1, 8))
async def test_a_tokenizer_that_cannot_count_parts_is_asked_for_the_whole(cut: int) -> None:
    tokens = ["Once", " upon", " a", " time", " there", " was", " a", " dragon", " who", " spoke"]
    assert_whole(await resumed(tokens, 9, cut, count=with_a_mark), tokens, 9)
