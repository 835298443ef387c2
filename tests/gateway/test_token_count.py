"""A stream broken off goes on with the tokens that its limit leaves, whatever its text's own number of tokens is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.script import (
    Script,
    Step,
    chunk,
    delta,
    done,
    end,
    eof,
    event,
    fin,
    head,
    json_answer,
    role,
    usage_object,
)
from tests.fakes.scripted import Answer, Request, ScriptedUpstream
from tests.fakes.storyteller import PROMPT_TOKENS

Count = Callable[[str], int]  # of the tokens of a text
WITH_USAGE = {"include_usage": True}
PATIENT = {"failures": 1000, "interval": "1h"}


def in_text(text: str) -> int:
    """As byte-pair tokenizers split: the last of several line ends belongs to what follows it."""
    return len(re.findall(r"\n+(?!\S)|\n| ?\w+|\W", text))


def with_a_mark(text: str) -> int:
    """As tokenizers that begin every text with a mark, which joins with a word but not with another space."""
    return text.startswith(" ") + len(re.findall(r" ?\w+|\W", text))


def with_line_ends(text: str) -> int:
    """As tokenizers that have full stops with the line ends after them."""
    return len(re.findall(r" ?\w+|[^\w\s]+\n*|\s+", text))


def saying(tokens: list[str], breaks_after: int | None, joins: int = 1, count: Count = in_text) -> Answer:
    """A vLLM that says these tokens, so many a chunk, and goes on in the middle of one."""
    whole = "".join(tokens)

    def left_of(held: str) -> list[str]:
        at = 0
        for number, token in enumerate(tokens):
            if at >= len(held):
                return tokens[number:]
            at += len(token)
            if at > len(held):
                return [whole[len(held) : at], *tokens[number + 1 :]]
        return []

    def answer(request: Request) -> Script:
        body = request.json()
        if request.target == "/tokenize":
            return json_answer({"tokens": [0] * count(body["prompt"])})
        last = body["messages"][-1]
        held = last["content"] if last["role"] == "assistant" else ""
        left = left_of(held)
        given = left[: body["max_tokens"]]
        chunks = ["".join(given[at : at + joins]) for at in range(0, len(given), joins)]
        shown: list[Step] = [delta({"content": each}) for each in chunks]
        if breaks_after is not None:
            return [head(200, "sse"), role(), *shown[:breaks_after], eof()]
        counts = usage_object(PROMPT_TOKENS + count(held), len(given))
        finish = fin("stop" if len(given) == len(left) else "length")
        return [head(200, "sse"), role(), *shown, finish, event(chunk([], usage=counts)), done(), end()]

    return answer


async def resumed(tokens: list[str], limit: int, breaks_after: int, joins: int = 1, count: Count = in_text) -> Reply:
    async with (
        ScriptedUpstream(saying(tokens, breaks_after, joins, count)) as a,
        ScriptedUpstream(saying(tokens, None, count=count)) as b,
    ):
        endpoints = [
            {"id": name, "url": url, "engine": "vllm", "weights": "w"} for name, url in (("a", a.url), ("b", b.url))
        ]
        async with running_gateway(config(*endpoints, pool_options={"health": PATIENT})) as gw:
            while True:
                reply = await gw.post(r0(max_tokens=limit, stream_options=WITH_USAGE))
                if reply.header("x-weir-endpoint") == "a":
                    return reply


def assert_whole(reply: Reply, tokens: list[str], limit: int) -> None:
    assert reply.content() == "".join(tokens[:limit])
    assert reply.finishes() == ["length"]
    (usage,) = [each["usage"] for each in reply.chunks if each.get("usage")]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (PROMPT_TOKENS, limit)
    assert "weir_estimated" not in usage


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
