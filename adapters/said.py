"""What a stream has said so far, kept so that another engine can go on with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .json_values import Json, as_object, objects, read_json, write_json
from .openai_shape import OUTPUT_KEYS

MOST_BYTES = 256 * 1024
FINISHED = "the answer had its finish reason already"
TOO_LONG = f"more than {MOST_BYTES // 1024} KiB had been given"

_HEAD = ("id", "object", "created", "system_fingerprint")
_PIECE = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_WORDS = {"tool_calls": "a tool call", "reasoning": "reasoning", "reasoning_content": "reasoning"}


class Said:
    """The text of one stream with one choice. A token costs its own bytes and one more.

    Attributes:
        quoted: The pieces of text as JSON has them, each with its closing quote. Whoever lets a plain chunk pass adds
            that part of it.
        unfit: Why nobody could go on with it; None if somebody may.
        head: What all its chunks have in common: id, object, created.
    """

    __slots__ = ("head", "quoted", "unfit")

    def __init__(self) -> None:
        self.quoted = bytearray()
        self.unfit: str | None = None
        self.head: Json = {}

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Keeps what a chunk on its way to the client says."""
        if not self.head:
            self.head = {key: chunk[key] for key in _HEAD if key in chunk}
        for choice in objects(chunk.get("choices")):
            self._take_choice(choice)
        self.bound()

    def bound(self) -> None:
        """Gives up what has grown too large; to be called now and then while plain chunks pass."""
        if len(self.quoted) > MOST_BYTES:
            self.unfit = TOO_LONG
            self.quoted.clear()

    def back_to(self, quoted_bytes: int, unfit: str | None) -> None:
        """Takes back what came since there was so much: the client is not given it. What was given up stays so."""
        if self.unfit != TOO_LONG:
            del self.quoted[quoted_bytes:]
            self.unfit = unfit

    def pieces(self) -> list[str] | None:
        """Returns the pieces of text, or None if they cannot be read."""
        try:
            return [read_json(b'"' + piece) for piece in _PIECE.findall(self.quoted)]
        except ValueError:
            return None

    def _take_choice(self, choice: Json) -> None:
        if choice.get("index") not in (0, None):
            self.unfit = self.unfit or "it has several choices"
        if choice.get("logprobs"):
            self.unfit = self.unfit or "it has log-probabilities"
        if choice.get("finish_reason"):
            self.unfit = self.unfit or FINISHED
        delta = as_object(choice.get("delta"))
        text = choice.get("text") if delta is None else delta.get("content")
        for key in OUTPUT_KEYS if delta is not None else ():
            if key != "content" and delta and delta.get(key):
                self.unfit = self.unfit or f"{_WORDS.get(key, key)} had begun"
        if isinstance(text, str) and text:
            self.quoted += write_json(text, b"")[1:]
        elif text:
            self.unfit = self.unfit or "its content is no text"
