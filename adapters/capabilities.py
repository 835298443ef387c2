"""What each engine can do for an OpenAI call, and what a call needs.

A field that changes the shape of the answer (tools, several choices, log-probabilities) has to be understood by the
engine: a request that sends it goes to endpoints that can, or is refused. A field that tunes the sampling excludes
nobody; adapters drop it and say so. An engine is taken to do whatever is not known to be missing, so that its own
refusal, not ours, ends the rare case. Some capabilities are there to be told, and never needed: several tool calls
may be allowed by a client who then gets one, and ``best_of`` chooses between answers of the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, Literal, NamedTuple, get_args

from .bodies import BadBody, with_texts
from .foreign_fields import SHAPES, asks
from .json_values import as_list, as_object, objects
from .types import GatewayRequest, Unsupported

Capability = Literal[
    # operations
    "chat",
    "text_completion",
    "embeddings",
    # of chat
    "tools",
    "forced_tool_choice",  # tool_choice required, or a named tool
    "parallel_tool_calls",
    "json_object",
    "json_schema",
    "logprobs",
    "top_logprobs",
    "images",
    "audio",
    "reasoning",  # thoughts apart from the answer
    "continue_chat",  # goes on from an assistant message that broke off
    # of text completions
    "prompt_list",
    "streamed_prompt_list",
    "prompt_token_ids",
    "text_logprobs",
    "streamed_text_logprobs",
    "echo",
    "suffix",
    "best_of",
    # of both
    "streaming",
    "usage",
    "n",
    "seed",
    "logit_bias",
    # fields of single engines (foreign_fields)
    "structured_outputs",
    "bare_json_schema",
    "regex",
    "ebnf",
    "grammar",
    "prompt_logprobs",
    "return_token_ids",
]
Capabilities = frozenset[Capability]

EVERYTHING: Capabilities = frozenset(get_args(Capability))
NOTHING: Capabilities = frozenset()

_LACKS: Mapping[str, tuple[Capability, ...]] = {
    "openai": (),  # whatever speaks the dialect: nothing is known against it
    "vllm": ("best_of",),  # accepted, does nothing
    "sglang": ("best_of",),  # accepted, does nothing
    "llamacpp": (
        "forced_tool_choice",  # required and named were both answered with plain text in recordings
        "echo",  # ignored in recordings
        "suffix",  # has /infill instead
        "best_of",  # accepted, does nothing
    ),
    "tgi": (
        "embeddings",  # another product
        "parallel_tool_calls",  # its tool grammar holds one call
        "json_object",  # its own form of it wants a schema
        "n",  # ignored
        "audio",  # content parts are text and images
        "prompt_token_ids",  # prompts are text
        "text_logprobs",  # ignored at /v1/completions, fine in chat
        "streamed_text_logprobs",
        "echo",  # ignored
        "suffix",  # 422
        "best_of",  # of its native API only
        "logit_bias",  # 422
    ),
    "ollama": (
        "forced_tool_choice",  # tool_choice is not read at all
        "n",  # ignored
        "audio",  # chat takes text and images
        "continue_chat",  # depends on the model's template
        "prompt_list",  # one string, else 400
        "streamed_prompt_list",
        "prompt_token_ids",  # 400
        "echo",  # ignored
        "best_of",  # ignored
        "logit_bias",  # ignored
    ),
    "lightllm": (
        "embeddings",
        "forced_tool_choice",  # asked for in the prompt only; nothing forces a call
        "logprobs",  # ignored in chat
        "top_logprobs",
        "audio",
        "continue_chat",  # a trailing assistant message becomes history
        "streamed_prompt_list",  # 400
        "streamed_text_logprobs",  # an empty object
        "suffix",  # 400
        "best_of",  # must equal n
        "logit_bias",  # 400
    ),
    "lmdeploy": (
        "embeddings",  # the route answers that it is unsupported
        "n",  # documented as one choice only
        "continue_chat",  # not known of any version
        "streamed_prompt_list",  # every answer comes under index 0
        "prompt_token_ids",  # of its native API only
        "text_logprobs",  # never filled at /v1/completions
        "streamed_text_logprobs",
        "echo",  # ignored
        "suffix",  # ignored
        "best_of",
    ),
    "trtllm": (
        "continue_chat",  # by token ids only
        "suffix",  # refused
    ),
}

_FOREIGN: Mapping[str, Capability] = {
    "guided_json": "structured_outputs",
    "guided_regex": "structured_outputs",
    "guided_choice": "structured_outputs",
    "guided_grammar": "structured_outputs",
    "structured_outputs": "structured_outputs",
    "json_schema": "bare_json_schema",
    "regex": "regex",
    "ebnf": "ebnf",
    "grammar": "grammar",
    "prompt_logprobs": "prompt_logprobs",
    "return_token_ids": "return_token_ids",
}
_WITHOUT_FOREIGN = frozenset(("tgi", "ollama", "lightllm"))
"""Engines that have none of those. The others get such fields as they came, whether they know them or not."""

_SINCE: Mapping[str, Mapping[Capability, tuple[int, ...]]] = {
    "vllm": {"forced_tool_choice": (0, 8, 3)},
    "ollama": dict.fromkeys(("logprobs", "top_logprobs", "text_logprobs", "streamed_text_logprobs"), (0, 12, 11)),
}
"""The first version that has it, where older ones are still met."""

# No versions to go by: builds from source, which call themselves so whatever they are
_BUILT = re.compile(r"dev|^v?0\.0\.0")
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")

_CHAT_FIELDS = frozenset(("tools", "response_format", "logprobs", "top_logprobs", "n", *_FOREIGN))
_TEXT_FIELDS = frozenset(("response_format", "logprobs", "n", "echo", "suffix", *_FOREIGN))
_FORMATS: Mapping[str, Capability] = {"json_object": "json_object", "json_schema": "json_schema"}
_PARTS: Mapping[str, Capability] = {"image_url": "images", "input_audio": "audio"}
_TEXTS = ("suffix", *_FOREIGN)  # that ask for nothing if they are empty
_EMBEDDINGS: Capabilities = frozenset(("embeddings",))
_GET = dict[str, Any].get
_CONTENT = repeat("content")


class _Remedy(NamedTuple):
    """What a client is told: the field at fault, what the engine cannot do, and what to do instead."""

    param: str
    cannot: str
    instead: str


_FORMAT_INSTEAD = "send a response_format json_schema"
_REMEDIES: Mapping[Capability, _Remedy] = {
    "embeddings": _Remedy("model", "make embeddings", "ask for a model of another engine"),
    "tools": _Remedy("tools", "call tools", "leave tools out"),
    "forced_tool_choice": _Remedy("tool_choice", "be made to call a tool", "send tool_choice auto, or a json_schema"),
    "json_object": _Remedy("response_format", "keep to any JSON object", "send a response_format json_schema"),
    "json_schema": _Remedy("response_format", "keep to a JSON schema", "leave response_format out"),
    "logprobs": _Remedy("logprobs", "tell log-probabilities", "leave logprobs out"),
    "top_logprobs": _Remedy("top_logprobs", "tell the log-probabilities of other tokens", "leave top_logprobs out"),
    "images": _Remedy("messages", "see images", "send text only"),
    "audio": _Remedy("messages", "hear audio", "send text only"),
    "prompt_token_ids": _Remedy("prompt", "take a prompt as token ids", "send it as text"),
    "prompt_list": _Remedy("prompt", "take several prompts at once", "send one prompt a request"),
    "streamed_prompt_list": _Remedy("prompt", "stream the answers to several prompts", "send one prompt a request"),
    "text_logprobs": _Remedy("logprobs", "tell log-probabilities", "leave logprobs out"),
    "streamed_text_logprobs": _Remedy("logprobs", "tell log-probabilities in a stream", "send stream: false"),
    "n": _Remedy("n", "give more than one choice", "send the request n times"),
    "echo": _Remedy("echo", "repeat the prompt", "put the prompt before the answer yourself"),
    "suffix": _Remedy("suffix", "write what comes before a suffix", "leave suffix out"),
    "structured_outputs": _Remedy("structured_outputs", "keep to guided_* or structured_outputs", _FORMAT_INSTEAD),
    "bare_json_schema": _Remedy("json_schema", "keep to a json_schema outside of response_format", _FORMAT_INSTEAD),
    "regex": _Remedy("regex", "keep to a regex", _FORMAT_INSTEAD),
    "ebnf": _Remedy("ebnf", "keep to an ebnf", _FORMAT_INSTEAD),
    "grammar": _Remedy("grammar", "keep to a grammar", _FORMAT_INSTEAD),
    "prompt_logprobs": _Remedy("prompt_logprobs", "tell the prompt's log-probabilities", "leave prompt_logprobs out"),
    "return_token_ids": _Remedy("return_token_ids", "tell token ids", "leave return_token_ids out"),
}
"""All that can be needed, and the order in which it is told."""


def capabilities(engine: str, version: str = "") -> Capabilities:
    """Returns what an engine can do: all there is if it is not known, and what the newest can if its version is not."""
    able = EVERYTHING.difference(_LACKS.get(engine, ()))
    if engine in _WITHOUT_FOREIGN:
        able = able.difference(_FOREIGN.values())
    since = _SINCE.get(engine)
    found = _VERSION.match(version)
    if since is None or found is None or _BUILT.search(version):
        return able
    told = tuple([int(part or 0) for part in found.groups()])
    return able.difference([capability for capability, first in since.items() if told < first])


def needed(request: GatewayRequest) -> Capabilities:
    """Returns what an engine must be able to do for the answer to have the shape that the client asked for.

    Whether the fields are well formed is the engine's to say, in its own words.
    """
    body = request.body
    match request.operation:
        case "chat":
            parts = _content_parts(body)
            if not parts and _CHAT_FIELDS.isdisjoint(body):
                return NOTHING
            body = _uncut(request)
            return frozenset((*_chat_needs(body), *_common_needs(body), *_part_needs(parts)))
        case "text_completion":
            if isinstance(body.get("prompt"), str) and _TEXT_FIELDS.isdisjoint(body):
                return NOTHING
            body = _uncut(request)
            return frozenset((*_text_needs(body, stream=request.stream), *_common_needs(body)))
        case "embeddings":
            return _EMBEDDINGS
        case "other":
            return NOTHING


def unsupported(engine: str, missing: Capabilities, request: GatewayRequest) -> Unsupported:
    """Returns the refusal of a request that ``engine`` cannot serve.

    Args:
        engine: Its name.
        missing: What it lacks of what is ``needed``; at least one.
        request: The client's call.
    """
    lack, (param, cannot, instead) = next(remedy for remedy in _REMEDIES.items() if remedy[0] in missing)
    param = next((field for field, needs in _FOREIGN.items() if needs == lack and field in request.body), param)
    message = f"{engine} cannot {cannot} ({param} of {request.path}): {instead}"
    return Unsupported(message, param)


def _uncut(request: GatewayRequest) -> Mapping[str, Any]:
    try:
        return with_texts(request.raw, request.body, _TEXTS)
    except BadBody:  # whoever writes it anew will say so
        return request.body


def _content_parts(body: Mapping[str, Any]) -> list[Any]:
    """The content parts of all messages; most requests have strings for content, and no parts."""
    messages: Any = body.get("messages")
    try:
        # Long conversations come here with every request: no step of it is Python's
        if list not in map(type, map(_GET, messages, _CONTENT)):
            return []
    except TypeError:
        pass  # no list, or a message in it that is no object
    lists = [message["content"] for message in objects(messages) if isinstance(message.get("content"), list)]
    return [part for content in lists for part in content]


def _part_needs(parts: list[Any]) -> Iterator[Capability]:
    for part in objects(parts):
        kind = part.get("type")
        if isinstance(kind, str) and (capability := _PARTS.get(kind)) is not None:
            yield capability


def _chat_needs(body: Mapping[str, Any]) -> Iterator[Capability]:
    choice = body.get("tool_choice")
    if body.get("tools") and choice != "none":
        yield "tools"
        if choice == "required" or isinstance(choice, dict):
            yield "forced_tool_choice"
    if body.get("logprobs"):
        yield "logprobs"
        if body.get("top_logprobs"):
            yield "top_logprobs"


def _text_needs(body: Mapping[str, Any], *, stream: bool) -> Iterator[Capability]:
    prompts = as_list(body.get("prompt")) or [""]
    if isinstance(prompts[0], int | list):
        yield "prompt_token_ids"
    # A list of one prompt is no reason to refuse: an adapter can unpack it
    if len(prompts) > 1 and not isinstance(prompts[0], int):
        yield "streamed_prompt_list" if stream else "prompt_list"
    logprobs = body.get("logprobs")
    if isinstance(logprobs, int) and logprobs is not False:  # 0 asks for those of the chosen tokens
        yield "streamed_text_logprobs" if stream else "text_logprobs"
    if body.get("echo"):
        yield "echo"
    if body.get("suffix"):
        yield "suffix"


def _common_needs(body: Mapping[str, Any]) -> Iterator[Capability]:
    n = body.get("n")
    if isinstance(n, int) and n > 1:
        yield "n"
    if (wanted := as_object(body.get("response_format"))) is not None:
        kind = wanted.get("type")
        if isinstance(kind, str) and (capability := _FORMATS.get(kind)) is not None:
            yield capability
    for field, capability in _FOREIGN.items():
        if (value := body.get(field)) is not None and asks(value, SHAPES[field]):
            yield capability
