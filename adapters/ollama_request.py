"""OpenAI's requests in Ollama's words: ``/api/chat``, ``/api/generate``, ``/api/embed``.

Nulls are left out. A field that has no counterpart is refused if it would change the answer's shape; otherwise it is
left out, and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from . import foreign_fields
from .json_values import Json, as_list, as_object
from .ollama_errors import invalid, unsupported
from .ollama_messages import native_messages
from .ollama_options import SAMPLING, all_strings, given_options, sampling_options

_NATIVE = ("keep_alive", "truncate", "shift")  # Ollama's own, under their own names
_GENERATES = frozenset(
    (
        *SAMPLING,
        *_NATIVE,
        "model",
        "stream",
        "stream_options",
        "options",
        "stop",
        "think",
        "format",
        "response_format",
        "logprobs",
    )
)
_CHAT = _GENERATES | {"messages", "tools", "tool_choice", "top_logprobs", "reasoning_effort", "reasoning"}
_COMPLETION = _GENERATES | {"prompt", "suffix"}
_EMBEDDINGS = frozenset(("model", "input", "dimensions", "encoding_format", "options", "keep_alive", "truncate"))
# What has no counterpart and would change the answer's shape, unless it has one of these values.
_SHAPES: dict[str, tuple[Any, ...]] = {
    **foreign_fields.SHAPES,
    "n": (1,),
    "echo": (False,),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "web_search_options": (),
    "continue_final_message": (False,),
}
# What changes nothing: fields that are not about the answer, and values that are the engine's way anyway.
_UNTOLD = frozenset(
    ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
)
_DEFAULTS: dict[str, tuple[Any, ...]] = {"best_of": (1,), "logit_bias": ({},), "parallel_tool_calls": (True,)}
# Names of dropped fields become a header: only such, and so many.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_NAMES = 32

_EFFORTS = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "max",
    "xhigh": "max",
    "ultra": "max",
}


def chat(body: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Returns the fields for ``/api/chat`` but model and stream, and the names of those left out.

    Raises:
        EngineFailed: 400, names the field.
    """
    dropped = _left_out(body, _CHAT)
    native: Json = {"messages": native_messages(body.get("messages")), **_shared(body, dropped)}
    if tools := _tools(body):
        native["tools"] = tools
    think = _think(body)
    thinks = _thinks(body)
    if thinks is not None:
        dropped.remove("chat_template_kwargs")
        if think is None and not thinks:  # to think is the way of a model that can; of another it would be refused
            think = False
    if think is not None:
        native["think"] = think
    if body.get("logprobs"):
        native["logprobs"] = True
        if body.get("top_logprobs") is not None:
            native["top_logprobs"] = body["top_logprobs"]
    return native, _names(dropped)


def completion(body: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Returns the fields for ``/api/generate`` but model and stream, and the names of those left out.

    The prompt goes to the model as it is. With a suffix the model's template has to place both.

    Raises:
        EngineFailed: 400, names the field.
    """
    dropped = _left_out(body, _COMPLETION)
    native: Json = {"prompt": _prompt(body.get("prompt")), **_shared(body, dropped)}
    if suffix := body.get("suffix"):
        native["suffix"] = suffix
    else:
        native["raw"] = True
    # Otherwise a model that can think has its tags looked for, and text taken out of the completion
    think = body.get("think")
    native["think"] = False if think is None else think
    logprobs = body.get("logprobs")
    if logprobs is not None and logprobs is not False:
        native["logprobs"] = True
        if logprobs is not True:
            native["top_logprobs"] = logprobs
    return native, _names(dropped)


def embeddings(body: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Returns the fields for ``/api/embed`` but model, and the names of those left out.

    Raises:
        EngineFailed: 400, names the field.
    """
    dropped = _left_out(body, _EMBEDDINGS)
    if body.get("encoding_format") not in (None, "float", "base64"):
        raise invalid("encoding_format", "must be 'float' or 'base64'")
    texts = body.get("input")
    if not isinstance(texts, str) and not all_strings(texts):
        raise unsupported("input", "embeds a string or a list of strings, no token ids")
    if not texts:
        raise invalid("input", "must not be empty")
    native: Json = {"input": texts, **_own(body, ("keep_alive", "truncate", "dimensions"))}
    if options := given_options(body, dropped):
        native["options"] = options
    return native, _names(dropped)


def _left_out(body: Mapping[str, Any], taken: frozenset[str]) -> list[str]:
    """Returns the names of the fields that are neither taken nor without effect."""
    names: list[str] = []
    for field, value in body.items():
        if value is None or field in taken or field in _UNTOLD or value in _DEFAULTS.get(field, ()):
            continue
        if field not in _SHAPES:
            names.append(field)
        elif value not in _SHAPES[field]:
            raise unsupported(field, "cannot do what this field asks for")
    return names


def _names(dropped: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dropped if _NAME.fullmatch(name))[:_MOST_NAMES]


def _own(body: Mapping[str, Any], fields: Iterable[str]) -> Json:
    return {field: body[field] for field in fields if body.get(field) is not None}


def _shared(body: Mapping[str, Any], dropped: list[str]) -> Json:
    """What chats and completions have in common."""
    native = _own(body, _NATIVE)
    if (form := _format(body)) is not None:
        native["format"] = form
    if options := sampling_options(body, dropped):
        native["options"] = options
    return native


def _prompt(value: Any) -> str:
    items = as_list(value)
    if items is not None and len(items) == 1 and isinstance(items[0], str):
        value = items[0]
    if not isinstance(value, str):
        raise unsupported("prompt", "completes one text, no list of prompts and no token ids")
    if not value:
        raise unsupported("prompt", "needs a prompt; without one it only loads the model")
    return value


def _format(body: Mapping[str, Any]) -> Any:
    """``"json"``, a JSON schema, or None for text."""
    wanted = body.get("response_format")
    if wanted is None:
        return body.get("format")
    wanted = as_object(wanted) or {}
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return "json"
        case "json_schema":
            schema = as_object((as_object(wanted.get("json_schema")) or {}).get("schema"))
            if schema is None:
                raise invalid("response_format.json_schema.schema", "must be an object")
            return schema
        case _:
            raise unsupported("response_format", "knows the types text, json_object and json_schema")


def _tools(body: Mapping[str, Any]) -> list[Json]:
    choice = body.get("tool_choice")
    if choice not in (None, "none", "auto"):
        raise unsupported("tool_choice", "cannot be made to call a tool")
    if choice == "none":
        return []  # it knows no such field, but calls no tool that it is not told of
    given_tools = as_list(body.get("tools") or [])
    if given_tools is None:
        raise invalid("tools", "must be a list")
    tools: list[Json] = []
    for at, item in enumerate(given_tools):
        function = as_object((as_object(item) or {}).get("function"))
        if function is None:
            raise unsupported(f"tools[{at}]", "knows tools of type function only")
        given = {key: value for key, value in function.items() if value is not None}
        tools.append({"type": "function", "function": given})
    return tools


def _thinks(body: Mapping[str, Any]) -> bool | None:
    """``enable_thinking``, other engines' switch; None if ``chat_template_kwargs`` do not hold it, or hold more."""
    match as_object(body.get("chat_template_kwargs")):
        case {"enable_thinking": bool(thinks), **others} if not others:
            return thinks
        case _:
            return None


def _think(body: Mapping[str, Any]) -> Any:
    """``think``, from whichever of the three names a client uses; None leaves it to the model."""
    effort = body.get("reasoning_effort")
    if effort is None:
        effort = (as_object(body.get("reasoning")) or {}).get("effort")
    if effort is None:
        return body.get("think")
    if not isinstance(effort, str) or effort not in _EFFORTS:
        raise invalid("reasoning_effort", f"must be one of {', '.join(_EFFORTS)}")
    return _EFFORTS[effort]
