"""What a simulated engine says: text, tool calls and JSON that follow the prompt a little, the same every time.

A token is a piece of a word with the space before it; the pieces of a text, joined, are the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal
from zlib import crc32

from pydantic import JsonValue

from gateway.simulator.json_values import value_for

Channel = Literal["content", "reasoning", "tool_name", "tool_arguments"]
FinishReason = Literal["stop", "length", "tool_calls", "abort"]

_PIECE = re.compile(r" ?[A-Za-z]{1,7}| ?\d{1,3}|\s|.", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{2,}")
_TOPIC_CHARACTERS = 2000  # the end of a long prompt says what is asked

_COMMON = frozenset(
    _WORD.findall(
        """a about all also am an and any are as at be been but by call can could describe did do does each explain few
        find five for four from get give had has have hello help hey hi how if in into is it its just know let list long
        make many may me more most my name need no not of on one or our out please same say see seven shall short should
        show six so some such sum tell ten than that the their them then there these they this those three to tool two
        up use very want was we were what when where which while who why will with word words would write you your"""
    )
)
_OPENINGS = (
    "Here is a simulated answer about {a}.",
    "This simulated engine was asked about {a}, so here is a short answer.",
    "A simulated engine knows nothing of {a}, but it can talk about it.",
)
_MIDDLES = (
    "The first thing to look at is how {a} and {b} belong together.",
    "Much depends on {b}, and a little on patience.",
    "People who work with {a} often start small and measure before they change anything.",
    "There is more than one opinion on {b}.",
    "A good question to ask is what {a} would be without {b}.",
    "In practice {b} takes longer than planned.",
    "It helps to write down what is known about {a}.",
    "Some say that {a} is simple, and that {b} only looks hard.",
)
_CLOSINGS = (
    "That is the short version of {a}.",
    "In short: begin with {a}, and keep {b} in mind.",
    "I hope that this says enough about {a}.",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client offers."""

    name: str
    description: str
    parameters: JsonValue


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an answer has to be.

    Attributes:
        prompt: Where the topic comes from.
        continues: The answer goes on where the prompt ends, rather than being a message of its own. A prompt that ends
            with a part of such an answer gets the rest of it.
        begun: What has been said of the answer; it gets the rest.
        seed: Equal prompts with equal seeds get equal answers.
        min_tokens: The prose goes on for at least so long.
        thoughts: Sentences of reasoning before the answer.
        tool_result: What a tool called before has said, or None.
        tool: The function to call, or None.
        json_schema: The answer is JSON of this schema; None for prose.
    """

    prompt: str
    continues: bool = False
    begun: str = ""
    seed: int = 0
    min_tokens: int = 0
    thoughts: int = 0
    tool_result: str | None = None
    tool: Tool | None = None
    json_schema: JsonValue = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of an answer. ``text`` may be empty where a stop string cut it off."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; ``stop_reason`` is the stop string that ended it."""

    pieces: tuple[Piece, ...]
    finish_reason: FinishReason
    stop_reason: str | None = None


def pieces_of(text: str) -> list[str]:
    """Cuts a text into tokens."""
    return _PIECE.findall(text)


def count_tokens(text: str) -> int:
    """Returns how many tokens a text has."""
    return len(_PIECE.findall(text))


def token_id(piece: str) -> int:
    """Returns the number of a token, 0 to 49,999; different tokens may share one."""
    return crc32(piece.encode()) % 50_000


def topics(prompt: str) -> list[str]:
    """Returns what a prompt seems to be about, the likeliest first; never empty."""
    words = [word[:20] for word in _WORD.findall(prompt[-_TOPIC_CHARACTERS:]) if word.lower() not in _COMMON]
    names = [word for word in words[1:] if word[0].isupper()]
    return list(dict.fromkeys([*names, *sorted(words, key=len, reverse=True)])) or ["that"]


def tool_for(tools: Sequence[Tool], prompt: str) -> Tool | None:
    """Returns the tool whose name or description shares most words with the prompt, or None if none shares any."""
    spoken = {word.lower() for word in _WORD.findall(prompt)} - _COMMON

    def shared(tool: Tool) -> int:
        return len(spoken & {word.lower() for word in _WORD.findall(f"{tool.name} {tool.description}")})

    best = max(tools, key=shared, default=None)
    return best if best is not None and shared(best) else None


def compose(assignment: Assignment) -> list[Piece]:
    """Writes the whole answer.

    Raises:
        BadSchema: The tool's parameters or the JSON schema can't be satisfied.
    """
    subjects = topics(assignment.prompt)
    random = _random(assignment)
    pieces = _channel("reasoning", _thoughts(subjects, assignment.thoughts))
    if assignment.tool is not None:
        arguments = value_for(assignment.tool.parameters or {"type": "object"}, subjects)
        text = json.dumps(arguments, ensure_ascii=False)
        return [*pieces, Piece("tool_name", assignment.tool.name), *_channel("tool_arguments", text)]
    if assignment.json_schema is not None:
        text = json.dumps(value_for(assignment.json_schema, subjects), ensure_ascii=False)
        return [*pieces, *_channel("content", text)]
    if assignment.continues:
        return [*pieces, *_channel("content", _rest_of_prompt(assignment))]
    text = _prose(subjects, random, assignment.tool_result, _least(assignment, assignment.begun))
    if assignment.begun:
        return _channel("content", text.removeprefix(assignment.begun))
    return [*pieces, *_channel("content", text)]


def cut(pieces: Sequence[Piece], max_tokens: int, stop: Sequence[str], *, finish_reason: FinishReason) -> Answer:
    """Ends an answer at the first stop string in its content, or after ``max_tokens``."""
    kept = list(pieces[:max_tokens])
    content = "".join(piece.text for piece in kept if piece.channel == "content")
    found = [(content.find(text) + len(text), text) for text in stop if text and text in content]
    if not found:
        return Answer(tuple(kept), finish_reason if len(kept) == len(pieces) else "length")
    end, text = min(found)
    shown, seen, answer = end - len(text), 0, list[Piece]()
    for piece in kept:
        if piece.channel != "content":
            answer.append(piece)
            continue
        answer.append(Piece("content", piece.text[: max(0, shown - seen)]))
        seen += len(piece.text)
        if seen >= end:
            break
    return Answer(tuple(answer), "stop", text)


def _rest_of_prompt(assignment: Assignment) -> str:
    """Goes on with a prompt, or with the answer to a part of it that it ends with."""
    prompt = assignment.prompt
    for at in (*_where_answers_begin(prompt), len(prompt)):
        told, begun = prompt[:at], prompt[at:]
        asked = replace(assignment, prompt=told.rstrip())  # whether a space is the prompt's or the answer's
        space = "" if told[-1:].isspace() else " "
        text = space + _prose(topics(told), _random(asked), None, _least(assignment, begun))
        if text.startswith(begun):
            return text[len(begun) :]
    raise AssertionError("every text begins with nothing")


def _where_answers_begin(prompt: str) -> list[int]:
    """Where the opening of an answer begins in a prompt, whole or as its end."""
    places: set[int] = set()
    for opening in _OPENINGS:
        fixed = opening.partition("{")[0]
        if (at := prompt.rfind(fixed)) >= 0:
            places |= {at, at - 1} if prompt[at - 1 : at] == " " else {at}
        for size in range(1, len(fixed)):
            if prompt.endswith(fixed[:size]):
                at = len(prompt) - size
                places |= {at, at - 1} if prompt[at - 1 : at] == " " else {at}
    return sorted(places)


def _least(assignment: Assignment, begun: str) -> int:
    """The least tokens of a whole answer, the limit being that of its rest."""
    return assignment.min_tokens + count_tokens(begun) if assignment.min_tokens else 0


def _random(assignment: Assignment) -> Random:
    return Random(f"{assignment.seed} {assignment.prompt[-_TOPIC_CHARACTERS:]}")


def _channel(channel: Channel, text: str) -> list[Piece]:
    return [Piece(channel, piece) for piece in pieces_of(text)]


def _thoughts(subjects: Sequence[str], number: int) -> str:
    thoughts = [f"The user asks about {subjects[0]}.", "A short answer will do.", "I should stay with the question."]
    return " ".join(thoughts[i % len(thoughts)] for i in range(number))


def _prose(subjects: Sequence[str], random: Random, tool_result: str | None, min_tokens: int) -> str:
    first, second = subjects[0], subjects[1 % len(subjects)]
    if second == first:
        second = "the rest"
    middles = [line.format(a=first, b=second) for line in random.sample(_MIDDLES, random.randint(3, 6))]
    tokens = sum(map(count_tokens, middles))
    while tokens < min_tokens:
        middles.append(random.choice(_MIDDLES).format(a=first, b=second))
        tokens += count_tokens(middles[-1])
    opening = random.choice(_OPENINGS).format(a=first)
    if tool_result is not None:
        opening = f"The tool says: {tool_result[:200]}".rstrip(".") + "."
    return " ".join((opening, *middles, random.choice(_CLOSINGS).format(a=first, b=second)))
