"""What was said so far in the answer to one call: every dialect writes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from gateway.simulator.calls import Generation
from gateway.simulator.output import Output
from gateway.simulator.text import Channel, FinishReason, Piece, pieces_of

Fields = dict[str, object]

_ALTERNATIVES = pieces_of(" the a of and to in is it that for on with as by at one two be or not so but")


@dataclass(slots=True)
class Transcript:
    """Keeps the outputs of one call."""

    call: Generation
    pieces: list[list[Piece]] = field(init=False)
    finish: list[FinishReason | None] = field(init=False)
    queued_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0

    def __post_init__(self) -> None:
        self.pieces = [[] for _ in self.call.answers]
        self.finish = [None for _ in self.call.answers]

    def add(self, output: Output) -> bool:
        """Keeps one output. Returns whether it is the first of its choice."""
        first = not self.pieces[output.choice]
        if output.piece is not None:
            if not self.completion_tokens:
                self.queued_s, self.first_s = output.queued_s, output.at_s
            self.last_s = output.at_s
            self.pieces[output.choice].append(output.piece)
        self.finish[output.choice] = output.finish_reason
        return first

    @property
    def completion_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(map(len, self.pieces))

    @property
    def reasoning_tokens(self) -> int:
        """Those of them that are thoughts."""
        return sum(piece.channel == "reasoning" for pieces in self.pieces for piece in pieces)

    @property
    def prefill_s(self) -> float:
        """From the slot to the first token, seconds."""
        return self.first_s - self.queued_s

    @property
    def decode_s(self) -> float:
        """From the first token to the last, seconds."""
        return self.last_s - self.first_s

    @property
    def aborted(self) -> bool:
        """Whether a choice was ended from outside."""
        return "abort" in self.finish

    def text(self, choice: int, channel: Channel) -> str:
        """Returns everything a choice said in one channel."""
        return "".join(piece.text for piece in self.pieces[choice] if piece.channel == channel)

    def called(self, choice: int) -> bool:
        """Whether a choice holds a tool call that was not cut off."""
        return self.finish[choice] in ("stop", "tool_calls") and bool(self.text(choice, "tool_name"))

    def stopped_by_itself(self, choice: int) -> bool:
        """Whether a choice came to its own end, not to a limit or a stop string."""
        return self.finish[choice] in ("stop", "tool_calls") and self.call.answers[choice].stop_reason is None

    def chat_logprobs(self, pieces: Sequence[Piece]) -> Fields | None:
        """Returns the ``logprobs`` of a chat's tokens, or None if they weren't asked for."""
        wanted = self.call.logprobs
        if wanted is None:
            return None
        return {"content": [_entry(piece.text) | {"top_logprobs": _top(piece.text, wanted)} for piece in pieces]}

    def completion_logprobs(self, choice: int, pieces: Sequence[Piece]) -> Fields | None:
        """Returns the ``logprobs`` of the last tokens of a completion, or None if they weren't asked for."""
        wanted = self.call.logprobs
        if wanted is None:
            return None
        at = sum(len(piece.text) for piece in self.pieces[choice]) - sum(len(piece.text) for piece in pieces)
        offsets: list[int] = []
        for piece in pieces:
            offsets.append(at)
            at += len(piece.text)
        return {
            "text_offset": offsets,
            "token_logprobs": [logprob(piece.text) for piece in pieces],
            "tokens": [piece.text for piece in pieces],
            "top_logprobs": [{entry["token"]: entry["logprob"] for entry in _top(p.text, wanted or 1)} for p in pieces],
        }


def logprob(token: str) -> float:
    """Returns the invented log probability of a token."""
    return -(crc32(token.encode()) % 900 + 1) / 1000


def _entry(token: str, below: float = 0.0) -> Fields:
    return {"token": token, "logprob": logprob(token) - below, "bytes": list(token.encode())}


def _top(token: str, number: int) -> list[Fields]:
    others = [other for other in _ALTERNATIVES if other != token]
    return [_entry(token), *(_entry(o, 1.0 + rank) for rank, o in enumerate(others))][:number]
