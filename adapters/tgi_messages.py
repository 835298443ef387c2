"""Messages, tools and answer formats of a chat, as TGI reads them. Every function returns None for "as it is"."""

from __future__ import annotations

from typing import Any

from .json_values import Json, as_list, as_object, objects
from .types import Unsupported

_PARTS = ("text", "image_url")
_NO_PARAMETERS: Json = {"type": "object", "properties": {}}


def unsupported(param: str, what: str) -> Unsupported:
    """The refusal of a field that TGI cannot do."""
    return Unsupported(f"tgi does not support {what}", param)


def messages_for_tgi(messages: Any) -> tuple[list[Any] | None, bool]:
    """Returns the messages if one of them had to change, and whether text was lost.

    TGI has no role ``developer``; a message has content or tool calls, and must have one of them.

    Raises:
        EngineFailed: A part is neither text nor an image.
    """
    changed = lost = False
    out: list[Any] = []
    for message in as_list(messages) or ():
        fields = as_object(message)
        if fields is not None:
            repaired = _message(fields)
            lost |= bool(fields.get("content")) and "content" not in repaired
            changed |= repaired != fields
            message = repaired
        out.append(message)
    return out if changed else None, lost


def _message(fields: Json) -> Json:
    for part in objects(fields.get("content")):
        if "type" in part and part["type"] not in _PARTS:
            raise unsupported("messages", f"parts of type {str(part['type'])[:50]!r} in a message")
    message = fields
    if message.get("role") == "developer":
        message = {**message, "role": "system"}
    if message.get("tool_calls"):
        if "content" in message:  # it would be all that TGI sees of the message
            message = {key: value for key, value in message.items() if key != "content"}
    elif message.get("content") is None:
        message = {**message, "content": ""}
    return message


def tools_for_tgi(tools: Any) -> list[Any] | None:
    """Returns the tools if one of them had to change: a function without parameters needs some.

    Raises:
        EngineFailed: A tool is no function.
    """
    changed = False
    out: list[Any] = []
    for tool in as_list(tools) or ():
        fields = as_object(tool) or {}
        function = as_object(fields.get("function"))
        if function is None:
            raise unsupported("tools", f"tools of type {str(fields.get('type'))[:50]!r}")
        if function.get("parameters") is None and function.get("arguments") is None:
            given = {key: value for key, value in function.items() if value is not None}
            tool = {**fields, "function": {**given, "parameters": _NO_PARAMETERS}}
            changed = True
        out.append(tool)
    return out if changed else None


def format_for_tgi(response_format: Json) -> Json | None:
    """Returns ``response_format`` in TGI's words: the schema itself, which all its versions take.

    Raises:
        EngineFailed: Any JSON was asked for, without a schema.
    """
    kind = response_format.get("type")
    if kind == "json_schema" and (named := as_object(response_format.get("json_schema"))) is not None:
        return {"type": "json", "value": named.get("schema")}
    if kind == "json_object" and "value" not in response_format:
        raise unsupported("response_format", "response_format 'json_object', only 'json_schema'")
    return None
