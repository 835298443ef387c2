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


class Room:
    """What may be kept of many streams together.

    Attributes:
        held_bytes: What is.
        full: Says that there is no room.
    """

    def __init__(self, most_bytes: int) -> None:
        self.held_bytes = 0
        self.full = f"{most_bytes >> 20} MiB of other open requests are kept already"
        self._most_bytes = most_bytes

    def has(self, more_bytes: int) -> bool:
        return self.held_bytes + more_bytes <= self._most_bytes

    def take(self, more_bytes: int) -> bool:
        """Returns whether there is room for so much more, and counts it if so. Less than 0 gives back."""
        if more_bytes > 0 and not self.has(more_bytes):
            return False
        self.held_bytes += more_bytes
        return True


class Said:
    """The text of one stream with one choice. A token costs its own bytes and one more.

    Attributes:
        quoted: The pieces of text as JSON has them, each with its closing quote. Whoever lets a plain chunk pass adds
            that part of it.
        unfit: Why nobody could go on with it; None if somebody may.
        head: What all its chunks have in common: id, object, created.
        room: Where it is counted, whenever it is bounded; None if nowhere.
    """

    __slots__ = ("_given_up", "_held_bytes", "head", "quoted", "room", "unfit")

    def __init__(self) -> None:
        self.quoted = bytearray()
        self.unfit: str | None = None
        self.head: Json = {}
        self.room: Room | None = None
        self._held_bytes = 0
        self._given_up = False

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Keeps what a chunk on its way to the client says."""
        if not self.head:
            self.head = {key: chunk[key] for key in _HEAD if key in chunk}
        for choice in objects(chunk.get("choices")):
            self._take_choice(choice)
        self.bound()

    def bound(self) -> None:
        """Gives up what has grown too large; to be called now and then while plain chunks pass."""
        size_bytes = len(self.quoted)
        if size_bytes > MOST_BYTES:
            self._give_up(TOO_LONG)
        elif self.room is not None:
            if self.room.take(size_bytes - self._held_bytes):
                self._held_bytes = size_bytes
            else:
                self._give_up(self.room.full)

    def leave(self) -> None:
        """Nobody goes on with it any more: gives back its room."""
        if self.room is not None:
            self.room.take(-self._held_bytes)
            self.room, self._held_bytes = None, 0

    def back_to(self, quoted_bytes: int, unfit: str | None) -> None:
        """Takes back what came since there was so much: the client is not given it. What was given up stays so."""
        if not self._given_up:
            del self.quoted[quoted_bytes:]
            self.unfit = unfit

    def _give_up(self, why: str) -> None:
        self.unfit = why
        self._given_up = True
        self.quoted.clear()
        self.leave()

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
