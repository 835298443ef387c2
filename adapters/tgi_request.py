"""What a client's request needs so that TGI takes it, and takes it as it was meant.

TGI refuses explicit nulls, ``top_p`` 1, a bare string as ``stop``, negative seeds and ``logit_bias``; it ignores ``n``,
and reads ``presence_penalty`` as ``repetition_penalty`` less 2. It got ``max_completion_tokens`` in 3.0.2 only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import foreign_fields
from .bodies import BadBody, edit, read_whole, with_texts
from .json_values import Json, as_list, as_object
from .tgi_messages import format_for_tgi, messages_for_tgi, tools_for_tgi, unsupported
from .types import EngineFailed, GatewayRequest, UpstreamRequest

# Fields that would change what the answer is, by operation; with the values that ask for nothing.
_SHAPE: dict[str, dict[str, tuple[Any, ...]]] = {
    "chat": {
        **foreign_fields.SHAPES,
        "n": (1,),
        "functions": ([],),
        "function_call": ("none",),
        "modalities": (["text"],),
        "audio": (),
    },
    "text_completion": {
        **foreign_fields.SHAPES,
        "n": (1,),
        "echo": (False,),
        "logprobs": (False,),
        "suffix": ("",),
        "response_format": ({"type": "text"},),
    },
}
# Fields that tune the sampling, which TGI does not have or not on these routes; likewise.
_SAMPLING: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "top_k": (-1, 0),
    "min_p": (0,),
    "typical_p": (1,),
    "best_of": (1,),
    "reasoning_effort": (),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "ignore_eos": (False,),
    "repeat_last_n": (),
}
# Refused or misread by TGI even when they ask for nothing; what it ignores may stay.
_NEVER = frozenset(("presence_penalty", "logit_bias"))
# Fields whose new value is made of the client's old one.
_DERIVED = frozenset(("messages", "tools", "response_format", "stop"))


def encode_tgi(request: GatewayRequest, model: str | None) -> UpstreamRequest:
    """Returns the request for TGI.

    Raises:
        EngineFailed: It cannot do this (404 for embeddings, 400 for a field), or the body is none.
    """
    if request.operation == "embeddings":
        raise EngineFailed(
            404,
            "tgi makes no embeddings; for text-embeddings-inference set the endpoint's engine to openai",
            type="invalid_request_error",
            code="unsupported_operation",
        )
    if not request.body:
        return UpstreamRequest(request.path, request.raw, request.stream)
    body, edits = request.body, _Edits()
    try:
        if request.operation != "other":
            edits = _edits(request, with_texts(request.raw, body, ("suffix", *foreign_fields.SHAPES)))
            if edits.add.keys() & _DERIVED:  # a large body's long strings are cut
                edits = _edits(request, read_whole(request.raw))
        raw = edit(request.raw, body, model=model, add=edits.add, drop=edits.drop)
    except BadBody as error:
        raise EngineFailed(400, str(error)) from error
    return UpstreamRequest(request.path, raw, request.stream, tuple(edits.dropped))


class _Edits:
    """What is to change.

    Attributes:
        add: Fields to set.
        drop: Fields to leave out.
        dropped: What the client is told that it was left out.
    """

    def __init__(self) -> None:
        self.add: Json = {}
        self.drop: list[str] = []
        self.dropped: list[str] = []


def _edits(request: GatewayRequest, body: Mapping[str, Any]) -> _Edits:
    edits = _Edits()
    chat = request.operation == "chat"
    given: Json = {}
    for key, value in body.items():
        if value is None:
            edits.drop.append(key)
        else:
            given[key] = value
    for key, nothing in _SHAPE[request.operation].items():
        if key in given and foreign_fields.asks(given[key], nothing):
            raise unsupported(key, f"the field {key}" if chat else f"the field {key} of a text completion")
    _sampling(given, edits, chat=chat)
    _limits(given, edits)
    if chat:
        _conversation(given, edits)
        if request.stream and not request.wants_usage:
            edits.add["stream_options"] = request.options_for_usage()
    elif any(not isinstance(item, str) for item in as_list(given.get("prompt")) or ()):
        raise unsupported("prompt", "token ids as a prompt")
    return edits


def _sampling(given: Json, edits: _Edits, *, chat: bool) -> None:
    for key, nothing in _SAMPLING.items():
        if key not in given:
            continue
        told = foreign_fields.asks(given[key], nothing)
        if told or key in _NEVER:
            edits.drop.append(key)
        if told:
            edits.dropped.append(key)
    if given.get("suffix") == "":
        edits.drop.append("suffix")
    if (top_p := _number(given.get("top_p"))) is not None and top_p >= 1:
        edits.drop.append("top_p")  # off
    if isinstance(seed := given.get("seed"), int) and seed < 0:
        edits.add["seed"] = seed % 2**64
    if (penalty := given.pop("repeat_penalty", None)) is not None:
        edits.drop.append("repeat_penalty")
        if "repetition_penalty" in given:
            edits.dropped.append("repeat_penalty")
        else:
            given["repetition_penalty"] = edits.add["repetition_penalty"] = penalty
    if chat and "repetition_penalty" in given:
        edits.add.pop("repetition_penalty", None)
        penalty = _number(given["repetition_penalty"])
        edits.drop.append("repetition_penalty")
        if penalty is None:
            edits.dropped.append("repetition_penalty")
        elif penalty != 1:
            edits.add["presence_penalty"] = penalty - 2.0  # where chat has it


def _limits(given: Json, edits: _Edits) -> None:
    if isinstance(stop := given.get("stop"), str):
        edits.add["stop"] = [stop]
    if "max_completion_tokens" in given:  # with max_tokens, its older name, this one counts
        edits.add["max_tokens"] = given["max_completion_tokens"]
        edits.drop.append("max_completion_tokens")


def _conversation(given: Json, edits: _Edits) -> None:
    messages, lost = messages_for_tgi(given.get("messages"))
    if messages is not None:
        edits.add["messages"] = messages
    if lost:
        edits.dropped.append("messages.content")
    response_format = as_object(given.get("response_format"))
    if response_format is not None and response_format.get("type") == "text":
        response_format = None
        edits.drop.append("response_format")
    tools = given.get("tools")
    if response_format is not None and "tools" in given:
        if tools and given.get("tool_choice") != "none":
            raise unsupported("response_format", "response_format beside tools")
        edits.drop.append("tools")
        tools = None
    if (repaired := tools_for_tgi(tools)) is not None:
        edits.add["tools"] = repaired
    choice = as_object(given.get("tool_choice"))
    if choice is not None and choice.get("type") != "function":
        raise unsupported("tool_choice", f"a tool_choice of type {str(choice.get('type'))[:50]!r}")
    if response_format is not None and (converted := format_for_tgi(response_format)) is not None:
        edits.add["response_format"] = converted


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
