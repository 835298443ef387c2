"""Going on with a stream at another engine: which requests allow it, and what that engine is asked.

Chat goes on from a last message of the assistant's that the engine leaves open, a text completion from its prompt and
the text together. Both are exact as far as the engine is: greedy text joins to the text that an engine of the same
weights gives without a break, and a sampled one goes on as that model might have. Whatever would not come out so is
refused: the fields that a request may have are listed, and any other is taken to matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .bodies import BadBody, edit, read_whole
from .json_values import Json, as_list, as_object, read_json, write_json
from .types import GatewayRequest, Operation

_BOTH_FLAGS: Mapping[str, bool] = MappingProxyType({"add_generation_prompt": False, "continue_final_message": True})


class Recipe(NamedTuple):
    """How an engine goes on with a chat.

    Attributes:
        flags: Fields that make it do so.
        trims: White space at the end of the message may get lost, and comes again.
        echoes: Some versions repeat the message before they go on.
    """

    flags: Mapping[str, bool]
    trims: bool = False
    echoes: bool = False


_CHAT: Mapping[str, Recipe] = {
    "llamacpp": Recipe(_BOTH_FLAGS, echoes=True),
    "vllm": Recipe(_BOTH_FLAGS, trims=True),
    "sglang": Recipe(MappingProxyType({"continue_final_message": True})),  # without it, it is read as the user's
    "tgi": Recipe(MappingProxyType({}), trims=True),
}
_TEXT: Recipe = Recipe(MappingProxyType({}))
_TEXT_ENGINES = frozenset(("llamacpp", "vllm", "sglang", "tgi", "lightllm", "lmdeploy"))

_TOKEN_A_CHUNK = frozenset(("llamacpp",))
_COUNTS = frozenset(("llamacpp", "vllm", "sglang", "tgi"))

_LIMITS = ("max_tokens", "max_completion_tokens")
_COUNTED_BY = (*_LIMITS, "min_tokens")
# Fields that mean the same to the rest of an answer as to the whole of it.
_CARRIED = frozenset(
    (
        *("model", "messages", "prompt", "stream", "stream_options", "user", "metadata", "store", "service_tier"),
        *("temperature", "top_p", "top_k", "min_p", "logit_bias", "stop", "seed", *_COUNTED_BY),
        *("safety_identifier", "prompt_cache_key", "ignore_eos", "cache_prompt", "priority", "chat_template_kwargs"),
    )
)
# Values of other fields that ask for nothing.
_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
_ECHO_CHARS = 16


class Counted(NamedTuple):
    """The tokens of an answer that broke off.

    Attributes:
        given: Of what the client has, less what comes again.
        told: Of what the engine that goes on is told, in its prompt.
    """

    given: int
    told: int


class Rest(NamedTuple):
    """What another engine is asked, and how its answer is joined to what there is.

    Attributes:
        request: The client's, with what has been said.
        counted: The tokens of what has been said.
        repeats: White space that was given and comes again.
        echo: What the engine may repeat before it goes on; "" if it is too short to be told from an answer.
        ended: The answer has all its tokens; only its end is missing.
        estimated: ``counted`` is no count.
        prompt_estimate_tokens: Of the client's own request.
    """

    request: GatewayRequest
    counted: Counted
    repeats: str
    echo: str
    ended: bool
    estimated: bool
    prompt_estimate_tokens: int


def goes_on(engine: str, operation: Operation) -> bool:
    """Whether that engine can go on with an answer that broke off."""
    return engine in _CHAT if operation == "chat" else operation == "text_completion" and engine in _TEXT_ENGINES


def unfit(request: GatewayRequest) -> str | None:
    """Returns why an answer to this request cannot be gone on with exactly, or None if it can."""
    body = request.body
    for key, value in body.items():
        if key in _CARRIED or value is None:
            continue
        if not any(value == nothing and _is_bool(value) is _is_bool(nothing) for nothing in _NOTHING.get(key, ())):
            return f"the request's {key} cannot be carried over"
    for key in _COUNTED_BY:
        if body.get(key) is not None and body[key].__class__ is not int:  # engines take 5.0 and "5" for 5
            return f"the request's {key} is no whole number"
    if body.get("seed") is not None and body.get("temperature") != 0:
        return "a seed asks for the same answer every time"
    if (as_object(body.get("stream_options")) or {}).get("continuous_usage_stats"):
        return "the request's stream_options.continuous_usage_stats cannot be carried over"
    if request.operation == "text_completion":
        return None if isinstance(body.get("prompt"), str) else "the prompt is no text"
    last = as_object((as_list(body.get("messages")) or [None])[-1])
    if last is None or last.get("role") == "assistant":
        return "the conversation ends with a message of the assistant's"
    return None


def counts(engine: str) -> bool:
    """Whether that engine can be asked how many tokens a text has."""
    return engine in _COUNTS


def token_a_chunk(engine: str) -> bool:
    """Whether each chunk of plain text is one token there; others join what has waited."""
    return engine in _TOKEN_A_CHUNK


def is_counted(request: GatewayRequest, pieces: list[str]) -> bool:
    """Whether the pieces of text of such an engine are all its tokens.

    It holds back what may be the beginning of a stop string, and characters that are not whole; Weir holds back blanks
    and a bracket at the beginning of a chat's answer, which may be that of thinking.
    """
    held = request.operation == "chat" and pieces and (pieces[0][0].isspace() or pieces[0][0] == "<")
    return not (held or request.body.get("stop")) and all(piece.isascii() for piece in pieces)


def is_limited(request: GatewayRequest) -> bool:
    """Whether the request says how many tokens there may be, so that it matters how many there were."""
    return any(request.body.get(key) is not None for key in _COUNTED_BY)


def whole_again(request: GatewayRequest) -> GatewayRequest:
    """Returns a request that was kept without its parsed body with all of it."""
    return request._replace(body=read_whole(request.raw))


def said_again(engine: str, operation: Operation, text: str) -> str:
    """Returns what of the text that engine is told."""
    return text.rstrip() if _recipe(engine, operation).trims else text


def cut_in_stop(request: GatewayRequest, pieces: list[str]) -> bool:
    """Whether what has been said ends like the beginning of a stop string, which nobody can tell from a text."""
    text = "".join(pieces)
    return any(text.endswith(stop[:size]) for stop in _stops(request) for size in range(1, len(stop)))


def rest(engine: str, request: GatewayRequest, pieces: list[str], counted: Counted | None) -> Rest | str:
    """Returns what to ask an engine that goes on.

    Args:
        engine: Its name; one that ``goes_on``.
        request: The client's, ``whole_again``.
        pieces: What has been said; not ``cut_in_stop``.
        counted: The tokens of that; None if they were not counted.

    Returns:
        Why that would not be exact, if it would not.
    """
    recipe = _recipe(engine, request.operation)
    text = "".join(pieces)
    told = said_again(engine, request.operation, text)
    estimated = counted is None
    if counted is None:
        begun = _pieces_in(pieces, len(told))
        counted = Counted(begun, begun)
    add: Json = {}
    if request.operation == "text_completion":
        add["prompt"] = request.body["prompt"] + told
    elif told:
        add["messages"] = [*request.body["messages"], {"role": "assistant", "content": told}]
        add |= recipe.flags
    ended = False
    for key in _LIMITS:
        if (most := request.body.get(key)) is not None:
            ended = ended or 0 <= most <= counted.given
            add[key] = max(most - counted.given, 1) if most >= 0 else most
    if (least := request.body.get("min_tokens")) is not None:
        add["min_tokens"] = max(least - counted.given, 0)
    try:
        raw = edit(request.raw, request.body, add=add)
    except BadBody as error:
        return str(error)
    echo = told if recipe.echoes and len(told) >= _ECHO_CHARS and len(pieces) > 1 else ""
    asked = request._replace(raw=raw, body={**request.body, **add})
    return Rest(asked, counted, text[len(told) :], echo, ended, estimated, request.prompt_estimate_tokens)


class CountRequest(NamedTuple):
    """Asks an engine how many tokens a text has."""

    path: str
    body: bytes


def count_request(engine: str, model: str, text: str) -> CountRequest | None:
    """Returns the question; None if that engine cannot be asked."""
    if engine not in _COUNTS:
        return None
    match engine:
        case "llamacpp":
            asked: Json = {"content": text, "add_special": False}
        case "tgi":
            asked = {"inputs": text, "add_special_tokens": False}
        case _:
            asked = {"model": model, "prompt": text, "add_special_tokens": False}
    return CountRequest("/tokenize", write_json(asked, b""))


def count_in(answer: bytes) -> int | None:
    """Returns the number of tokens that an engine told; None if it did not."""
    try:
        value = read_json(answer)
    except ValueError:
        return None
    tokens = as_list(value)
    if tokens is None:
        tokens = as_list((as_object(value) or {}).get("tokens"))
    return None if tokens is None else len(tokens)


def _recipe(engine: str, operation: Operation) -> Recipe:
    return _CHAT[engine] if operation == "chat" else _TEXT


def _stops(request: GatewayRequest) -> list[str]:
    stop = request.body.get("stop")
    return [stop] if isinstance(stop, str) else [each for each in as_list(stop) or () if isinstance(each, str)]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _pieces_in(pieces: list[str], chars: int) -> int:
    """How many pieces begin in the first so many characters."""
    begun = at = 0
    for piece in pieces:
        if at >= chars:
            break
        begun += 1
        at += len(piece)
    return begun
