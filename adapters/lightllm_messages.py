"""Chat messages as LightLLM takes them: no role ``developer``; content parts of text, images and audio by address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .json_values import Json, as_list, as_object, objects

# An address may be a data URL. OpenAI's own audio part, input_audio, is not known.
TAKEN_PARTS = frozenset(("text", "image_url", "audio_url"))

_DEVELOPER = b'"developer"'
_ROLE_BYTES = 64
_AFTER_ROLE = re.compile(rb'(?<!\\)"role"[ \t\r\n]*:[ \t\r\n]*\Z')


def foreign_parts(body: Mapping[str, Any]) -> Iterator[str]:
    """The types of content parts that would be left out of the prompt without a word."""
    for message in objects(body.get("messages")):
        for part in objects(message.get("content")):
            kind = part.get("type")
            if isinstance(kind, str) and kind not in TAKEN_PARTS:
                yield kind


def developers(body: Mapping[str, Any]) -> int:
    """How many messages have the role ``developer``."""
    return sum(message.get("role") == "developer" for message in objects(body.get("messages")))


def with_system_roles(raw: bytes, developers: int) -> bytes | None:
    """Writes the role ``system`` in place of ``developer``.

    Args:
        raw: A request body of valid JSON.
        developers: How many messages have that role.

    Returns:
        The body, or None if it is not certain where those roles are.
    """
    # No unescaped `"developer"` can be within a string. It is a role if a key "role" stands before it, and it is a
    # message's if there are as many as messages have.
    pieces = raw.split(_DEVELOPER)
    roles = [_AFTER_ROLE.search(piece[-_ROLE_BYTES:]) is not None for piece in pieces[:-1]]
    if sum(roles) != developers or b"\\u00" in raw:
        return None
    out = [pieces[0]]
    for role, piece in zip(roles, pieces[1:], strict=True):
        out += (b'"system"' if role else _DEVELOPER, piece)
    return b"".join(out)


def system_messages(messages: Any) -> list[Any]:
    """The messages with ``system`` for ``developer``."""
    return [_as_system(message) for message in as_list(messages) or []]


def _as_system(message: Any) -> Any:
    fields: Json | None = as_object(message)
    return message if fields is None or fields.get("role") != "developer" else {**fields, "role": "system"}
