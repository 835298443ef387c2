"""Thinking that an engine leaves in the text: ``<think>...</think>`` at its beginning, taken from the answer. Pure.

Engines with a reasoning parser send it in a field of its own; the others (TGI, llama.cpp with
``reasoning_format: none``, vLLM without ``--reasoning-parser``) send the tags. Only a tag at the very beginning counts:
further on, it is text.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from .json_values import Json

_OPEN, _CLOSE = "<think>", "</think>"
_MOST_BLANKS = 64
_BEGUN = re.compile(rf"\s{{0,{_MOST_BLANKS}}}{_OPEN}")


class Parts(NamedTuple):
    """What a piece of text turned out to be. No character is lost but for the tags and the blanks before the first."""

    reasoning: str
    answer: str


class ThinkTags:
    """The text of one choice, piece by piece: a tag may be cut anywhere, so a part of one is held back.

    Attributes:
        done: From here on, all is answer.
    """

    __slots__ = ("_held", "_where", "done")

    def __init__(self) -> None:
        self.done = False
        self._held: str = ""
        self._where: Literal["before", "inside"] = "before"

    def split(self, text: str) -> Parts:
        """Takes the next piece."""
        if self.done:
            return Parts("", text)
        text = self._held + text
        self._held = ""
        if self._where == "before":
            begun = text.lstrip()
            if not begun.startswith(_OPEN):
                if _OPEN.startswith(begun) and len(text) <= _MOST_BLANKS:
                    self._held = text
                    return Parts("", "")
                self.done = True
                return Parts("", text)
            self._where = "inside"
            text = begun[len(_OPEN) :]
        reasoning, closed, answer = text.partition(_CLOSE)
        if closed:
            self.done = True
            return Parts(reasoning, answer)
        held = _begun_close(text)
        self._held = text[len(text) - held :]
        return Parts(text[: len(text) - held], "")

    def rest(self) -> Parts:
        """Says that the text is over. Returns what was held back."""
        held, self._held = self._held, ""
        self.done = True
        return Parts(held, "") if self._where == "inside" else Parts("", held)


def split_delta(tags: ThinkTags, delta: Json, *, last: bool) -> bool:
    """Takes the thinking out of a chunk's text, in place. Returns whether anything changed."""
    text = delta.get("content")
    if not tags.done and (theirs := delta.get("reasoning_content") or delta.get("reasoning")):
        held = tags.rest()  # the engine does it itself
        if held.reasoning and isinstance(theirs, str):
            delta["reasoning_content"] = delta["reasoning"] = held.reasoning + theirs
        if held.answer and isinstance(text, str | None):
            delta["content"] = held.answer + (text or "")
        return any(held)
    if tags.done or not isinstance(text, str | None):
        return False
    reasoning, answer = tags.split(text) if text else Parts("", "")
    if last:
        more = tags.rest()
        reasoning, answer = reasoning + more.reasoning, answer + more.answer
    if not reasoning and answer == (text or ""):
        return False
    if reasoning:
        delta["reasoning_content"] = reasoning
        delta.pop("content", None)
    if answer or not reasoning:
        delta["content"] = answer
    return True


def split_message(message: Json) -> bool:
    """The same for a whole answer's message."""
    text = message.get("content")
    if not isinstance(text, str) or not begins_with_thinking(text):
        return False
    if message.get("reasoning_content") or message.get("reasoning"):
        return False
    tags = ThinkTags()
    first, more = tags.split(text), tags.rest()
    if reasoning := first.reasoning + more.reasoning:
        message["reasoning_content"] = reasoning
    message["content"] = first.answer + more.answer or None
    return True


def begins_with_thinking(text: object) -> bool:
    return isinstance(text, str) and _BEGUN.match(text) is not None


def _begun_close(text: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of a closing tag."""
    for size in range(min(len(_CLOSE) - 1, len(text)), 0, -1):
        if _CLOSE.startswith(text[-size:]):
            return size
    return 0
