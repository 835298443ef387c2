"""What OpenAI-speaking engines say when something is wrong, in all the shapes seen in the field.

``{"error": {...}}`` (OpenAI, vLLM, llama.cpp), ``{"error": "text"}`` (vLLM's 401, TGI, transformers), flat
``{"object": "error", "message": ...}`` (SGLang), ``{"detail": ...}`` (FastAPI), plain text, HTML.
"""

from __future__ import annotations

import re
from typing import Any

from .json_values import Json, as_object, objects, read_json
from .types import EngineFailed

# All that Starlette says of a path that it does not have, as vLLM has no /v1/embeddings when its model chats.
_NO_SUCH_PATH = "Not Found"
_WHY = "the engine serves no such call; its model may be of another kind, as a chat model makes no embeddings"
_SHOWN_CHARS = 2000
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
    if status is None:
        return None
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
    return told[:_SHOWN_CHARS] or "the engine reported an error without a message"


def _status(fields: Json) -> int | None:
    for key in ("code", "status", "http_status_code", "status_code"):
        value = fields.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:200]


def _detail(detail: Any) -> str:
    """FastAPI's: a text, or a list of ``{"loc": [...], "msg": ...}``."""
    parts: list[str] = []
    for item in objects(detail):
        where = ".".join(str(part) for part in item.get("loc") or ())
        parts.append(f"{where}: {item.get('msg')}" if where else str(item.get("msg")))
    return ("; ".join(parts) or str(detail))[:_SHOWN_CHARS]
