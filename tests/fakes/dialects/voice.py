"""One endpoint of an engine: what it understands, and how it puts an answer into bytes."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.dialects.answer import Ask, Json, Load, Output, Said, Say
from tests.fakes.script import Body, Finish, Head, Script, Step, end, eof, to_json

CREATED_UNIX_S = 1_787_300_000
OWN_MODEL = "org/engine-model"
"""The name under which every engine serves its model."""

Headers = tuple[tuple[str, str], ...]


class Refused(Exception):
    """The engine answers with this instead: an error, or what it takes for one."""

    def __init__(self, script: Script) -> None:
        super().__init__("refused")
        self.script = script


@dataclass(frozen=True, slots=True)
class Turn:
    """One piece of one choice.

    Attributes:
        index: The choice.
        at: Its place in the answer, from 0.
        last: Whether it is the last of this choice.
    """

    index: int
    output: Output
    at: int
    last: bool

    @property
    def first(self) -> bool:
        return self.at == 0


class Voice:
    """An endpoint that generates.

    Attributes:
        most_calls: How many tool calls an answer can hold; None for any number.
        think_tags: Reasoning comes as text between tags.
        comment: What it writes into a silent stream; b"" for nothing.
        head_first: The 200 of a stream goes out before the first token, so that whatever fails then is in the stream.
        number: How many requests it has answered, this one counted: what makes an id of its own.
    """

    most_calls: int | None = None
    think_tags = False
    comment = b""
    head_first = True

    def __init__(self, say: Say, load: Load) -> None:
        self.say = say
        self.load = load
        self.number = 0

    # --- what an engine has its own way of

    def ask(self, body: Json) -> Ask:
        """Reads and checks a request.

        Raises:
            Refused: The engine does not take it.
        """
        raise NotImplementedError

    def head(self, ask: Ask) -> Head:
        """The head of a stream."""
        raise NotImplementedError

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        """One output of a stream, with what the engine sends along with it."""
        raise NotImplementedError

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        """All that follows the last output, up to and with the end of the body."""
        raise NotImplementedError

    def broken(self, ask: Ask) -> list[Step]:
        """How a stream that has begun tells of a failure, up to and with the end of the body."""
        raise NotImplementedError

    def whole(self, ask: Ask, said: Said) -> Script:
        """An answer that is not streamed."""
        raise NotImplementedError

    def failed(self, ask: Ask) -> Script:
        """How the engine fails while nothing has been sent."""
        raise NotImplementedError

    def full(self, ask: Ask) -> Script:
        """How it says that it has no room."""
        raise NotImplementedError

    # --- what all do alike

    def answer(self, ask: Ask, said: Said) -> Script:
        """The whole script for one request."""
        self.number += 1
        say = self.say
        if say.busy != "no":
            return self.full(ask)
        if not ask.stream:
            return self._whole(ask, said)
        if say.fails_after == 0:
            return [self.head(ask), *self.broken(ask)] if self.head_first else self.failed(ask)
        quiet = [Body(self.comment)] if say.slow and self.comment else []
        pieces = [[*quiet, *self.piece(ask, said, turn)] for turn in turns(said, ask.choices)]
        stop = next((k for k in (say.fails_after, say.cut_after) if k is not None), len(pieces))
        steps: list[Step] = [self.head(ask), *(step for piece in pieces[:stop] for step in piece)]
        if say.cut_after is not None:
            return [*steps, eof()]
        return [*steps, *(self.closing(ask, said) if say.fails_after is None else self.broken(ask))]

    def _whole(self, ask: Ask, said: Said) -> Script:
        if self.say.fails_after is not None:
            return self.failed(ask)
        script = self.whole(ask, said)
        return script if self.say.cut_after is None else cut_short(script)


def turns(said: Said, choices: int) -> list[Turn]:
    """The pieces of all choices, taking turns."""
    last = len(said.outputs) - 1
    return [Turn(i, output, at, at == last) for at, output in enumerate(said.outputs) for i in range(choices)]


def cut_short(script: Script) -> list[Step]:
    """The same answer, but the connection breaks in the middle of its body."""
    steps: list[Step] = []
    for step in script:
        if isinstance(step, Body):
            return [*steps, Body(step.data[: len(step.data) // 2]), eof()]
        if not isinstance(step, Finish):
            steps.append(step)
    return [*steps, eof()]


def sse(payload: object, *, spaced: bool = False) -> Body:
    """``data: `` and JSON, compact or as Python writes it by itself."""
    data = spaced_json(payload) if spaced else to_json(payload)
    return Body(b"data: " + data + b"\n\n")


def spaced_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def openai_top(ident: str, kind: str) -> Json:
    """The first keys of an answer or a chunk, in the order in which most engines write them."""
    return {"id": ident, "object": kind, "created": CREATED_UNIX_S, "model": OWN_MODEL}


DONE = Body(b"data: [DONE]\n\n")


def stream_head(*headers: tuple[str, str]) -> Head:
    return Head(200, headers, chunked=True, length_bytes=None)


def page(value: object, status: int = 200, headers: Headers = (), content_type: str = "application/json") -> list[Step]:
    """A whole answer with its length: bytes and text as they are, anything else as JSON."""
    data = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else to_json(value)
    typed = (("content-type", content_type),) if content_type else ()
    return [Head(status, (*headers, *typed), chunked=False, length_bytes=len(data)), Body(data), end()]


def empty(status: int = 200, headers: Headers = ()) -> list[Step]:
    return [Head(status, headers, chunked=False, length_bytes=0), end()]


def usage_numbers(said: Said, ask: Ask) -> tuple[int, int]:
    """Prompt and completion tokens of all prompts and choices."""
    return said.prompt_tokens * ask.prompts, said.completion_tokens * ask.choices


def token_logprob(text: str, top: int) -> Json:
    """OpenAI's log-probability of one token."""
    entry: Json = {"token": text, "logprob": -0.5, "bytes": list(text.encode())}
    return {
        **entry,
        "top_logprobs": [{"token": "~" * (i + 1), "logprob": -1.5 - i, "bytes": [126]} for i in range(top)],
    }


def chat_logprobs(pieces: Sequence[str], top: int | None) -> Json | None:
    return None if top is None else {"content": [token_logprob(piece, top) for piece in pieces]}


def text_logprobs(pieces: Sequence[str], top: int | None) -> Json | None:
    """The same in the old form of ``/v1/completions``."""
    if top is None:
        return None
    alternatives = [{"~" * (i + 1): -1.5 - i for i in range(top)} for _ in pieces]
    offsets = [sum(len(p) for p in pieces[:i]) for i in range(len(pieces))]
    return {
        "text_offset": offsets,
        "token_logprobs": [-0.5 for _ in pieces],
        "tokens": list(pieces),
        "top_logprobs": alternatives,
    }


def of_text(turn: Turn) -> list[str]:
    return [turn.output.text] if turn.output.kind == "text" and turn.output.text else []


def vectors(say: Say, ask: Ask) -> list[Any]:
    """Embeddings as numbers, or as base64 of little-endian 32-bit floats."""
    found = [list(say.vectors[i % len(say.vectors)]) for i in range(ask.inputs)]
    if not ask.base64:
        return found
    return [base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() for vector in found]
