"""What a pool knows of prompts: how many tokens they are, and which endpoints have seen how much of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from adapters.capabilities import Capabilities
from adapters.json_values import as_list, as_object, objects
from adapters.types import GatewayRequest
from policies.named_tuples import named
from policies.prefix_blocks import SEARCH_BYTES, chain, covered_bytes, value_at
from policies.prefix_map import PrefixMap
from policies.prefix_trust import FULL, Trust
from policies.token_ratio import NOTHING_LEARNT
from policies.types import NO_TOKENS, NOTHING, Answered, RouteQuery

from .media_parts import NO_MEDIA, Media, media_in

OFF_LOOP_BYTES = 262_144
"""The prefixes of a longer request are hashed in a thread."""
TOKENS_PER_MEDIUM = 512
"""What an image or a recording counts for; engines differ, from 85 to some thousands."""
MOST_TOOLS = 256
"""So many tools, by their names, tell one set of tools from another."""
_KEYS = {"chat": "messages", "text_completion": "prompt"}
_IN_TOKENS = {"text_completion": "prompt", "embeddings": "input"}
_ESCAPE_SAMPLE_BYTES = 1024
# \u4e00 is six bytes of a body and three of text
_ESCAPE_EXCESS_BYTES = 3


class Prompt(NamedTuple):
    """One request's prompt, without its words.

    Attributes:
        size_bytes: Of the whole body.
        text_bytes: Those of them that count as text; JSON's short escapes and the request's own fields among them.
        media: Images and recordings in it.
        known_tokens: Their number, of prompts given in tokens; else 0.
        start_bytes: Where in the body it begins.
        end_bytes: Where it ends, or the body does.
        blocks: Hashes of its beginnings; none if the pool's policy does not ask for them.
        held: By endpoint: how many of the leading blocks it has been sent before.
    """

    size_bytes: int = 0
    text_bytes: int = 0
    media: Media = NO_MEDIA
    known_tokens: int = 0
    start_bytes: int = 0
    end_bytes: int = 0
    blocks: tuple[int, ...] = ()
    held: Mapping[str, int] = NO_TOKENS

    def cached_tokens(self, tokens: int, blocks: int) -> int:
        """Returns how many of its tokens a cache holds that holds so many leading blocks, at least one.

        Tokens are taken to be spread evenly over the body, and what stands before the prompt to be held with it.
        """
        left_bytes = max(self.end_bytes - self.start_bytes - covered_bytes(blocks), 0)
        return tokens - min(tokens * left_bytes // self.size_bytes, tokens)


NO_PROMPT = Prompt()


def read_prompt(request: GatewayRequest, needs: Capabilities, *, prefixes: bool) -> Prompt:
    """Returns what there is to know of a request's prompt; of one that has none, nothing."""
    if request.operation == "other":
        return NO_PROMPT
    raw, operation, media = request.raw, request.operation, NO_MEDIA
    size_bytes = text_bytes = len(raw)
    if needs:
        images, recordings = "images" in needs, "audio" in needs
        if images or recordings:
            media = media_in(raw, images=images, recordings=recordings)
            text_bytes -= media.bytes
    if not media.number:
        middle = size_bytes // 2
        escapes = raw.count(b"\\u", middle, middle + _ESCAPE_SAMPLE_BYTES)
        if escapes:
            sample_bytes = min(_ESCAPE_SAMPLE_BYTES, size_bytes - middle)
            text_bytes -= min(escapes * _ESCAPE_EXCESS_BYTES * size_bytes // sample_bytes, size_bytes // 2)
    known_tokens = _token_ids(request.body.get(_IN_TOKENS[operation])) if operation in _IN_TOKENS else 0
    key = _KEYS.get(operation) if prefixes else None
    if key is None:
        return Prompt(size_bytes, text_bytes, media, known_tokens)
    start, end, seed = value_at(raw, key), size_bytes, None
    tools = request.body.get("tools")
    if tools:
        seed = tuple(_names(tools))
        if _comes_after(request.body, "tools", key):
            end = max(raw.rfind(b'"tools"', max(start, size_bytes - SEARCH_BYTES)), 0) or size_bytes
    blocks = chain(raw, start, end, seed)
    return named(Prompt, (size_bytes, text_bytes, media, known_tokens, start, end, blocks, NO_TOKENS))


class Prompts:
    """What one pool has learnt of its prompts.

    Args:
        endpoint_ids: Of the pool.
        prefix_memory_bytes: The most that the prefixes may take; None if the pool's policy does not ask for them.

    Attributes:
        ratio: Between bytes and tokens.
        prefixes: Which endpoint was sent what; None if nobody asks.
    """

    def __init__(self, endpoint_ids: Iterable[str], prefix_memory_bytes: int | None) -> None:
        self.ratio = NOTHING_LEARNT
        self.prefixes = None if prefix_memory_bytes is None else PrefixMap(endpoint_ids, prefix_memory_bytes)
        self._trust: dict[str, Trust] = {}

    async def read(self, request: GatewayRequest, needs: Capabilities) -> tuple[Prompt, RouteQuery]:
        """Returns a request's prompt and its first query. To be called once a request: a retry asks no more."""
        prefixes = self.prefixes is not None
        if prefixes and len(request.raw) > OFF_LOOP_BYTES:
            prompt = await asyncio.to_thread(read_prompt, request, needs, prefixes=True)
        else:
            prompt = read_prompt(request, needs, prefixes=prefixes)
        return self.known(prompt, needs)

    def known(self, prompt: Prompt, needs: Capabilities) -> tuple[Prompt, RouteQuery]:
        """Returns the prompt with who holds it, and the query."""
        tokens, blocks = self.tokens(prompt), prompt.blocks
        cached: Mapping[str, int] = NO_TOKENS
        if blocks and self.prefixes is not None:
            held = self.prefixes.held(blocks)
            if held:
                prompt = named(Prompt, (*prompt[:-1], held))
                cached = self._believed(prompt, tokens)
        return prompt, named(RouteQuery, (NOTHING, needs, tokens, blocks[:1], cached, None, (), ""))

    def tokens(self, prompt: Prompt) -> int:
        """Returns how many tokens a prompt is, estimated."""
        if prompt.known_tokens:
            return prompt.known_tokens
        tokens = round(prompt.text_bytes * self.ratio.tokens_per_byte)
        media = prompt.media.number
        return tokens + media * TOKENS_PER_MEDIUM if media else tokens

    def sent(self, prompt: Prompt, endpoint_id: str) -> None:
        """The prompt goes to that endpoint, whose cache will hold it."""
        if prompt.blocks and self.prefixes is not None:
            self.prefixes.sent(prompt.blocks, endpoint_id)

    def answered(self, prompt: Prompt, endpoint_id: str, sample: Answered) -> None:
        """Learns from what the engine counted, if it did."""
        prompt_tokens, cached_tokens = sample.prompt_tokens, sample.cached_tokens
        if prompt_tokens is None or not prompt.size_bytes:
            return
        if not prompt.media.number and not prompt.known_tokens:
            self.ratio = self.ratio.learnt(prompt.text_bytes, prompt_tokens)
        if cached_tokens is None:
            return
        blocks = prompt.held.get(endpoint_id)
        if blocks is None:
            return
        sent_tokens = prompt.cached_tokens(prompt_tokens, blocks)
        if sent_tokens > 0:
            trust = self._trust.get(endpoint_id, FULL)
            self._trust[endpoint_id] = trust.learnt(sent_tokens, cached_tokens, sample.at_s)

    def forget(self, endpoint_id: str) -> None:
        """The endpoint may have been started anew: its cache is empty, and its settings may be others."""
        self._trust.pop(endpoint_id, None)
        if self.prefixes is not None:
            self.prefixes.forget(endpoint_id)

    def _believed(self, prompt: Prompt, tokens: int) -> dict[str, int]:
        held, trust = prompt.held, self._trust
        numbers = [*held.values()]
        if numbers.count(numbers[0]) == len(numbers):
            believed = dict.fromkeys(held, prompt.cached_tokens(tokens, numbers[0]))
        else:
            by_blocks = {blocks: prompt.cached_tokens(tokens, blocks) for blocks in set(numbers)}
            believed = {name: by_blocks[blocks] for name, blocks in held.items()}
        if trust:
            now_s = perf_counter()
            for name in held.keys() & trust.keys():
                believed[name] = int(believed[name] * trust[name].now(now_s))
        return believed


def _token_ids(prompt: Any) -> int:
    """The tokens of a prompt that is a list of them, or of several such prompts."""
    ids = as_list(prompt)
    if not ids:
        return 0
    if ids[0].__class__ is int:
        return len(ids)
    prompts = [each for each in map(as_list, ids) if each is not None]
    return sum(map(len, prompts)) if len(prompts) == len(ids) else 0


def _comes_after(body: Mapping[str, Any], key: str, other: str) -> bool:
    """Whether a key of a body that has it stands behind another."""
    return next((name for name in body if name in (key, other)), key) == other


def _names(tools: Any) -> Iterable[str]:
    for tool in objects(tools)[:MOST_TOOLS]:
        function = as_object(tool.get("function")) or tool
        name = function.get("name")
        yield name if isinstance(name, str) else ""
