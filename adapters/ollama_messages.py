"""The turns of a chat in Ollama's words.

A native message has one text, all images beside it, the arguments of tool calls as an object, and the name of the tool
a result is from: ``{"role", "content", "images": [base64], "thinking", "tool_calls", "tool_name"}``. Where an image
stood between two texts is lost, and the names of participants have no place.
"""

from __future__ import annotations

from typing import Any

from .json_values import Json, as_list, as_object, read_json
from .ollama_errors import invalid, unsupported

_ROLES = {"developer": "system"}


def native_messages(messages: Any) -> list[Json]:
    """Returns the messages for ``/api/chat``.

    Raises:
        EngineFailed: A message is none, or holds what the engine cannot take (400, names the place).
    """
    turns = as_list(messages)
    if not turns:
        raise invalid("messages", "must be a list of at least one message")  # none at all would only load the model
    tools: dict[str, str] = {}
    return [_native(turn, f"messages[{at}]", tools) for at, turn in enumerate(turns)]


def _native(value: Any, where: str, tools: dict[str, str]) -> Json:
    """Returns one message; ``tools`` holds the names of the tools called so far, by call id."""
    message = as_object(value)
    if message is None:
        raise invalid(where, "must be an object")
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid(f"{where}.role", "must be a string")
    if message.get("function_call") is not None:
        raise unsupported(f"{where}.function_call", "knows tool_calls, not their forerunner")
    content, images = _content(message.get("content"), f"{where}.content")
    native: Json = {"role": _ROLES.get(role, role), "content": content}
    if images:
        native["images"] = images
    thinking = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thinking, str) and thinking:
        native["thinking"] = thinking
    if calls := as_list(message.get("tool_calls")):
        native["tool_calls"] = [
            _tool_call(call, f"{where}.tool_calls[{at}]", at, tools) for at, call in enumerate(calls)
        ]
    if role == "tool":
        native |= _tool_result(message, tools)
    return native


def _content(value: Any, where: str) -> tuple[str, list[str]]:
    """Returns the text, its parts on lines of their own as vLLM and llama.cpp join them, and the images."""
    if value is None:
        return "", []
    if isinstance(value, str):
        return value, []
    parts = as_list(value)
    if parts is None:
        raise invalid(where, "must be a string or a list of parts")
    texts: list[str] = []
    images: list[str] = []
    for at, item in enumerate(parts):
        place = f"{where}[{at}]"
        part = as_object(item) or {}
        kind = part.get("type")
        if kind in ("text", "refusal"):
            texts.append(_text(part.get(kind), f"{place}.{kind}"))
        elif kind == "image_url":
            images.append(_image(part.get("image_url"), f"{place}.image_url"))
        else:
            raise unsupported(place, "takes parts of type text and image_url only")
    return "\n".join(texts), images


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise invalid(where, "must be a string")
    return value


def _image(value: Any, where: str) -> str:
    fields = as_object(value)
    url = _text(value if fields is None else fields.get("url"), where)
    kind, _, data = url.partition(",")
    kind = kind[:100].lower()
    if not kind.startswith("data:"):
        raise unsupported(where, "fetches no images; send a data: URL")
    if not kind.endswith(";base64") or not data:
        raise invalid(where, "must be a data: URL in base64")
    return data


def _tool_call(value: Any, where: str, at: int, tools: dict[str, str]) -> Json:
    call = as_object(value) or {}
    function = as_object(call.get("function"))
    if function is None:
        raise unsupported(where, "knows tool calls of type function only")
    name = _text(function.get("name"), f"{where}.function.name")
    arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
    native: Json = {"function": {"index": at, "name": name, "arguments": arguments}}
    call_id = call.get("id")
    if isinstance(call_id, str):
        native["id"] = call_id
        tools[call_id] = name
    return native


def _arguments(value: Any, where: str) -> Json:
    if value is None or value == "":
        return {}  # a call without arguments, as some clients keep it
    if isinstance(value, str):
        try:
            value = read_json(value.encode())
        except ValueError:
            value = None
    arguments = as_object(value)
    if arguments is None:
        raise invalid(where, "must be a JSON object, written as a string")
    return arguments


def _tool_result(message: Json, tools: dict[str, str]) -> Json:
    native: Json = {}
    call_id, name = message.get("tool_call_id"), message.get("name")
    if isinstance(call_id, str):
        native["tool_call_id"] = call_id
        name = name or tools.get(call_id)
    if isinstance(name, str) and name:
        native["tool_name"] = name
    return native
