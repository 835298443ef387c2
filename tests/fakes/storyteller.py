"""An engine whose model knows one answer by heart: it goes on wherever that answer was left."""

from __future__ import annotations

from collections.abc import Sequence
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


def storyteller(tokens: Sequence[str], *, breaks_after: int | None = None, breaks: Sequence[Step] = (eof(),)) -> Answer:
    """Answers with these tokens, one a chunk, or with those that are left of them.

    Args:
        tokens: The whole answer.
        breaks_after: So many chunks of each stream, and then ``breaks``.
        breaks: How it breaks off.
    """

    def answer(request: Request) -> Script:
        body = request.json()
        if request.target == "/tokenize":
            held = str(body.get("content", body.get("prompt")))
            return json_answer({"tokens": _tokens_in(tokens, held)})
        chat, held = told_so_far(body)
        known = len(_tokens_in(tokens, held))
        most = body.get("max_tokens") or len(tokens)
        left = list(tokens[known:])[:most]
        finish = "stop" if known + len(left) == len(tokens) else "length"
        shown = [delta({"content": each}) if chat else text(each) for each in left]
        script: list[Step] = [head(200, "sse"), *([role()] if chat else []), *shown[:breaks_after]]
        if breaks_after is not None and breaks_after <= len(left):
            return [*script, *breaks]
        counts = usage_object(PROMPT_TOKENS + known, len(left))
        last = [fin(finish) if chat else text("", finish=finish), event(chunk([], usage=counts)), done(), end()]
        return [*script, *last]

    return answer


def _tokens_in(tokens: Sequence[str], held: str) -> list[int]:
    """The numbers of the tokens that make up the text."""
    at, found = 0, list[int]()
    for number, token in enumerate(tokens):
        if at >= len(held):
            break
        assert held.startswith(token[: len(held) - at], at), f"{held!r} is no beginning of the answer"
        at += len(token)
        found.append(number)
    return found
