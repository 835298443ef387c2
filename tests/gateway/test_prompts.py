"""What is read of a prompt without parsing it, and what a pool learns of prompts from its engines' counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.bodies import read_object
from adapters.capabilities import needed
from adapters.types import GatewayRequest, Operation
from gateway.media_parts import MOST_MEDIA, SEARCHED_BYTES, Media, media_in
from gateway.prompts import NO_PROMPT, TOKENS_PER_MEDIUM, Prompt, Prompts, read_prompt
from policies.types import Answered

MEMORY_BYTES = 1_000_000
NAMES = ("a", "b")
WORDS = "The weir holds the river back, and lets it go. "


def request(body: dict[str, Any], operation: Operation = "chat", **how: Any) -> GatewayRequest:
    raw = json.dumps({"model": "m", **body}, **how).encode()
    return GatewayRequest("r", operation, "/v1/x", "POST", "m", False, raw, read_object(raw), 0)


def chat(*contents: object, **more: object) -> GatewayRequest:
    return request({"messages": [{"role": "user", "content": content} for content in contents], **more})


def read(asked: GatewayRequest) -> Prompt:
    return read_prompt(asked, needed(asked), prefixes=True)


def counted(prompt_tokens: int | None, cached_tokens: int | None = None, at_s: float = 1.0) -> Answered:
    return Answered(0.0, at_s, None, prompt_tokens, cached_tokens, 1, None)


def image(data: str) -> list[object]:
    return [
        {"type": "text", "text": WORDS},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]


# --- how many tokens


def test_four_bytes_are_a_token_until_an_engine_counts() -> None:
    prompts, prompt = Prompts(NAMES, None), read(chat(WORDS * 100))
    assert prompts.tokens(prompt) == pytest.approx(len(WORDS) * 25, rel=0.05)
    for _ in range(100):
        prompts.answered(prompt, "a", counted(len(WORDS) * 50))
    assert prompts.tokens(prompt) == pytest.approx(len(WORDS) * 50, rel=0.05)
    before = prompts.ratio
    prompts.answered(prompt, "a", counted(None))
    prompts.answered(NO_PROMPT, "a", counted(5))
    assert prompts.ratio == before


def test_what_an_image_is_made_of_is_no_text() -> None:
    asked = chat(image("iVBOR" * 20_000), image("iVBOR" * 20_000))
    prompt = read(asked)
    assert prompt.media == Media(2, 200_000)
    assert prompt.text_bytes == len(asked.raw) - 200_000
    prompts = Prompts(NAMES, None)
    assert 2 * TOKENS_PER_MEDIUM < prompts.tokens(prompt) < 2 * TOKENS_PER_MEDIUM + 200
    before = prompts.ratio
    prompts.answered(prompt, "a", counted(10_000))
    assert prompts.ratio == before, "what an image costs says nothing of text"


def test_a_recording_and_an_image_elsewhere_are_counted_too() -> None:
    recording = {"type": "input_audio", "input_audio": {"data": "UklGR" * 1000, "format": "wav"}}
    assert read(chat([recording])).media == Media(1, 5000)
    elsewhere = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert read(chat([elsewhere])).media == Media(1, 0)
    assert read(chat('what is ";base64,"? and "data"?')).media == Media()


@pytest.mark.parametrize("raw", [b"", b";base64,", b'"data":', b'"data":"', b';base64,"' * (MOST_MEDIA + 9)])
def test_odd_bodies_have_so_many_media_at_most(raw: bytes) -> None:
    found = media_in(raw, images=True, recordings=True)
    assert 1 <= found.number <= MOST_MEDIA
    assert found.bytes <= len(raw)


def test_only_so_much_is_searched_for_media() -> None:
    assert media_in(b" " * SEARCHED_BYTES + b';base64,aaaa"', images=True, recordings=False) == Media(1, 0)


@pytest.mark.parametrize("ids", [list(range(1000)), [list(range(600)), list(range(400))]], ids=["one", "two"])
def test_a_prompt_in_tokens_is_counted(ids: list[object]) -> None:
    for asked in (request({"prompt": ids}, "text_completion"), request({"input": ids}, "embeddings")):
        prompts = Prompts(NAMES, None)
        assert prompts.tokens(read(asked)) == 1000
        before = prompts.ratio
        prompts.answered(read(asked), "a", counted(1000))
        assert prompts.ratio == before, "of text it tells nothing"


@pytest.mark.parametrize("odd", [[[]], ["word", [1]], [[1], "word"], [None], {}, 5])
def test_what_only_looks_like_tokens_is_estimated(odd: object) -> None:
    asked = request({"input": odd, "user": WORDS}, "embeddings")
    assert Prompts(NAMES, None).tokens(read(asked)) == round(len(asked.raw) / 4)


def test_escaped_letters_are_as_long_as_others() -> None:
    text = "水" * 3000
    plain, escaped = (
        request({"messages": [{"role": "user", "content": text}]}, ensure_ascii=ascii) for ascii in (False, True)
    )
    assert len(escaped.raw) > 1.9 * len(plain.raw)
    assert read(escaped).text_bytes == pytest.approx(read(plain).text_bytes, rel=0.05)


def test_what_is_no_prompt_is_none() -> None:
    assert read(request({}, "other")) == NO_PROMPT
    assert read(request({"input": WORDS * 100}, "embeddings")).blocks == ()


# --- what is shared


def test_a_conversation_that_goes_on_shares_its_beginning() -> None:
    first, second = read(chat(WORDS * 100)), read(chat(WORDS * 100, WORDS * 100, "and then?"))
    assert len(first.blocks) > 3
    assert second.blocks[: len(first.blocks) - 1] == first.blocks[:-1]
    other = read(chat("No. " + WORDS * 100))
    assert not set(other.blocks) & set(first.blocks)


def test_other_tools_are_another_beginning() -> None:
    def tools(*names: str) -> list[object]:
        return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]

    same, again, other, none = (
        read(chat(WORDS * 100, **more))
        for more in ({"tools": tools("a", "b")}, {"tools": tools("a", "b")}, {"tools": tools("a")}, {})
    )
    assert same.blocks == again.blocks
    assert not set(same.blocks) & (set(other.blocks) | set(none.blocks))


@pytest.mark.parametrize("tools", [5, "x", [], [5], [{}], [{"function": 5}], [{"function": {"name": [1]}}]])
@pytest.mark.parametrize("first", [True, False])
def test_odd_tools_are_no_fault(tools: object, first: bool) -> None:
    messages = {"messages": [{"role": "user", "content": WORDS * 100}]}
    body = {"tools": tools, **messages} if first else {**messages, "tools": tools}
    assert read(request(body)).blocks


def test_tools_after_the_messages_are_held_with_them() -> None:
    tools = [{"type": "function", "function": {"name": "a", "description": "d" * 20_000}}]
    prompt = read(chat(WORDS * 100, tools=tools))
    left_tokens = 5000 - prompt.cached_tokens(5000, len(prompt.blocks))
    assert left_tokens < 250, "a part of a block"


@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.booleans(),
    st.lists(st.integers(0, 2000), max_size=4),
)
async def test_no_more_is_believed_to_be_cached_than_there_is(
    sizes: list[int], cached_tokens: int, tools: bool, further: list[int]
) -> None:
    prompts = Prompts(NAMES, MEMORY_BYTES)
    more = {"tools": [{"type": "function", "function": {"name": "f"}}]} if tools else {}
    asked = chat(*("w" * size for size in sizes), **more)
    sent, _ = await prompts.read(asked, needed(asked))
    prompts.sent(sent, "a")
    asked = chat(*("w" * size for size in (*sizes, *further)), **more)
    prompt, query = await prompts.read(asked, needed(asked))
    prompts.answered(prompt, "a", counted(query.prompt_tokens, cached_tokens))
    for _ in range(2):
        assert all(0 <= tokens <= query.prompt_tokens for tokens in query.cached_tokens.values())
        _, query = await prompts.read(asked, needed(asked))


# --- what engines report of it


async def cached_at_a(prompts: Prompts, asked: GatewayRequest) -> float:
    """The part of the prompt that a is believed to hold."""
    _, query = await prompts.read(asked, needed(asked))
    return query.cached_tokens.get("a", 0) / query.prompt_tokens


async def test_an_endpoint_that_holds_nothing_is_not_credited_and_recovers() -> None:
    prompts, asked = Prompts(NAMES, MEMORY_BYTES), chat(WORDS * 200)
    prompt, query = await prompts.read(asked, needed(asked))
    assert query.cached_tokens == {}
    for name in NAMES:
        prompts.sent(prompt, name)
    assert await cached_at_a(prompts, asked) > 0.9
    prompt, query = await prompts.read(asked, needed(asked))
    for _ in range(20):
        prompts.answered(prompt, "a", counted(2000, None))
    assert await cached_at_a(prompts, asked) > 0.9, "an engine that does not tell is believed to"
    for _ in range(20):
        prompts.answered(prompt, "a", counted(2000, 0, at_s=1e9))
    assert await cached_at_a(prompts, asked) < 0.02
    assert query.cached_tokens["b"] > 0.9 * query.prompt_tokens
    for _ in range(20):
        prompts.answered(prompt, "a", counted(2000, 1990, at_s=1e9))
    assert await cached_at_a(prompts, asked) > 0.9


async def test_what_is_forgotten_of_an_endpoint_is_its_trust_too() -> None:
    prompts, asked = Prompts(NAMES, MEMORY_BYTES), chat(WORDS * 200)
    prompt, _ = await prompts.read(asked, needed(asked))
    prompts.sent(prompt, "a")
    prompt, _ = await prompts.read(asked, needed(asked))
    for _ in range(20):
        prompts.answered(prompt, "a", counted(2000, 0, at_s=1e9))
    prompts.forget("a")
    assert await cached_at_a(prompts, asked) == 0
    prompts.sent(prompt, "a")
    assert await cached_at_a(prompts, asked) > 0.9


async def test_a_pool_whose_policy_does_not_ask_pays_for_no_prefix() -> None:
    prompts, asked = Prompts(NAMES, None), chat(WORDS * 200)
    prompt, query = await prompts.read(asked, needed(asked))
    prompts.sent(prompt, "a")
    prompts.forget("a")
    assert (prompts.prefixes, prompt.blocks, query.blocks, query.cached_tokens) == (None, (), (), {})
    assert query.prompt_tokens > 0
