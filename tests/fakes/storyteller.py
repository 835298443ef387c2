"""An engine whose model knows one answer by heart: it goes on wherever that answer was left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.fakes.script import (
    Script,
    Step,
    chunk,
    delta,
    done,
    end,
    eof,
    event,
    fin,
    head,
    json_answer,
    role,
    text,
    usage_object,
)
from tests.fakes.scripted import Answer, Request

PROMPT_TOKENS = 5


def told_so_far(body: dict[str, Any]) -> tuple[bool, str]:
    """Returns whether a request is a chat, and what of the answer it holds already."""
    if "prompt" in body:
        return False, body["prompt"].removeprefix("hi")
    last = body["messages"][-1]
    return True, last["content"] if last["role"] == "assistant" else ""


def storyteller(
    tokens: Sequence[str],
    *,
    breaks_after: int | None = None,
    breaks: Sequence[Step] = (eof(),),
    joins: int = 1,
    count: Callable[[str], int] | None = None,
) -> Answer:
    """Answers with these tokens, or with what is left of them.

    Args:
        tokens: The whole answer.
        breaks_after: So many chunks of each stream, and then ``breaks``.
        breaks: How it breaks off.
        joins: So many tokens a chunk.
        count: Of the tokens of a text, as its tokenizer makes them; those of the answer, if it is not given.
    """

    def counted(held: str) -> int:
        return count(held) if count is not None else len(tokens) - len(_left(tokens, held))

    def answer(request: Request) -> Script:
        body = request.json()
        if request.target == "/tokenize":
            held = str(body.get("content", body.get("prompt")))
            return json_answer({"tokens": [0] * counted(held)})
        chat, held = told_so_far(body)
        left = _left(tokens, held)
        given = left[: body.get("max_tokens") or len(tokens)]
        finish = "stop" if len(given) == len(left) else "length"
        chunks = ["".join(given[at : at + joins]) for at in range(0, len(given), joins)]
        shown = [delta({"content": each}) if chat else text(each) for each in chunks]
        script: list[Step] = [head(200, "sse"), *([role()] if chat else []), *shown[:breaks_after]]
        if breaks_after is not None and breaks_after <= len(shown):
            return [*script, *breaks]
        counts = usage_object(PROMPT_TOKENS + counted(held), len(given))
        last = [fin(finish) if chat else text("", finish=finish), event(chunk([], usage=counts)), done(), end()]
        return [*script, *last]

    return answer


def _left(tokens: Sequence[str], held: str) -> list[str]:
    """What is left of the answer behind that beginning, which may end within a token."""
    whole = "".join(tokens)
    assert whole.startswith(held), f"{held!r} is no beginning of the answer"
    at = 0
    for number, token in enumerate(tokens):
        if at >= len(held):
            return list(tokens[number:])
        at += len(token)
        if at > len(held):
            return [whole[len(held) : at], *tokens[number + 1 :]]
    return []
