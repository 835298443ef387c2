"""What an answer says of itself besides its text, for traces. An engine's words: bounded, and of one line."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

MOST_CHARS = 128
MOST_REASONS = 16


class AnswerFacts(NamedTuple):
    """What is known of one answer.

    Attributes:
        id: As clients read it, or the engine's own where it went on with another's answer; "" if it is not known.
        model: The engine's own name, likewise.
        finish_reasons: OpenAI's, of the choices that ended, in their order.
    """

    id: str
    model: str
    finish_reasons: tuple[str, ...]


def answer_facts(answer_id: Any, model: Any, finish_reasons: Iterable[Any]) -> AnswerFacts | None:
    """Returns what is told of these values, whatever they are; None if that is nothing."""
    reasons = tuple([text for reason in islice(finish_reasons, MOST_REASONS) if (text := _text(reason))])
    facts = AnswerFacts(_text(answer_id), _text(model), reasons)
    return facts if any(facts) else None


def _text(value: Any) -> str:
    """The beginning of a text; "" for what is none, or has more than one line."""
    text = value[:MOST_CHARS] if isinstance(value, str) else ""
    return text if text.isprintable() else ""
