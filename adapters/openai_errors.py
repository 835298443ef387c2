"""What OpenAI-speaking engines say when something is wrong, in all the shapes seen in the field.

``{"error": {...}}`` (OpenAI, vLLM, llama.cpp), ``{"error": "text"}`` (vLLM's 401, TGI, transformers), flat
``{"object": "error", "message": ...}`` (SGLang), ``{"message": ...}``, ``{"detail": ...}`` (FastAPI), plain text, HTML.
"""

from __future__ import annotations

import re
from typing import Any

from .json_values import Json, as_list, as_object, objects, read_json
from .types import EngineFailed

# All that Starlette says of a path that it does not have, as vLLM has no /v1/embeddings when its model chats.
_NO_SUCH_PATH = "Not Found"
_WHY = "the engine serves no such call; its model may be of another kind, as a chat model makes no embeddings"
# What holds one of these inside a 200 is an answer, or a piece of one, whatever else it says.
_ANSWERS = frozenset(("choices", "data", "embeddings"))
_WITHOUT_A_MESSAGE = "the engine reported an error without a message"
_SHOWN_CHARS = 2000
_NAME_CHARS = 200
_READ_BYTES = 8192
_TAGS = re.compile(r"<(script|style)\b[^<]*</\1\s*>|<[^<>]*>", re.IGNORECASE)


def error_in(value: Any, *, status: int | None = None) -> EngineFailed | None:
    """Returns the error that a JSON value reports, or None if it is none.

    Args:
        value: A parsed body or stream frame.
        status: The HTTP status it came with; None inside a 200, where the error's own code decides, else 502.
    """
    fields = as_object(value)
    if fields is None:
        return None
    error = fields.get("error")
    if (told := as_object(error)) is not None:
        return _from_fields(told, status)
    if isinstance(error, str) and error:
        return EngineFailed(status or _status(fields) or 502, error, type=_text(fields.get("error_type")))
    if fields.get("object") == "error":
        return _from_fields(fields, status)
    if error:  # true, a number, a list
        told = fields if isinstance(fields.get("message"), str) else {"message": _detail(error)}
        return _from_fields({**fields, **told}, status)
    if status is None:
        if not _ANSWERS.isdisjoint(fields):
            return None
        status = _status(fields) or 502
    if (detail := fields.get("detail")) is not None:
        return EngineFailed(status, f"{detail}: {_WHY}" if detail == _NO_SUCH_PATH else _detail(detail))
    if isinstance(fields.get("message"), str):
        return _from_fields(fields, status)
    return None


def read_error(status: int, body: bytes) -> EngineFailed:
    """Reads the body of an error answer; never raises."""
    try:
        value = read_json(body)
    except ValueError:
        value = None
    found = error_in(value, status=status)
    if found is not None:
        return found
    text = body[:_READ_BYTES].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        text = f"the engine answered with a web page: {' '.join(_TAGS.sub(' ', text).split())}"
    return EngineFailed(status, text[:_SHOWN_CHARS] or f"the engine answered {status} without a message")


def _from_fields(fields: Json, status: int | None) -> EngineFailed:
    message = fields.get("message")
    return EngineFailed(
        status or _status(fields) or 502,
        message[:_SHOWN_CHARS] if isinstance(message, str) and message else _shown(fields),
        type=_text(fields.get("type")),
        code=_text(fields.get("code")),
        param=_text(fields.get("param")),
    )


def _shown(fields: Json) -> str:
    """An error without a message: what it holds instead."""
    told = "; ".join(f"{key}: {value}" for key, value in fields.items() if isinstance(value, (str, int)))
    return told[:_SHOWN_CHARS] or _WITHOUT_A_MESSAGE


def _status(fields: Json) -> int | None:
    for key in ("code", "status", "http_status_code", "status_code"):
        value = fields.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def _text(value: Any) -> str | None:
    return None if value is None else _shown_value(value)[:_NAME_CHARS]


def _detail(detail: Any) -> str:
    """FastAPI's: a text, or a list of ``{"loc": [...], "msg": ...}``; or a list of texts."""
    parts = [item for item in as_list(detail) or () if isinstance(item, str)]
    for item in objects(detail):
        where = ".".join(_shown_value(part) for part in as_list(item.get("loc")) or ())
        said = _shown_value(item.get("msg"))
        parts.append(f"{where}: {said}" if where else said)
    return ("; ".join(parts) or _shown_value(detail))[:_SHOWN_CHARS]


def _shown_value(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        return "(nested too deeply to be shown)"
