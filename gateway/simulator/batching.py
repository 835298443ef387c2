"""When tokens come out of an engine: continuous batching with chunked prefill, in virtual time.

An engine works in steps. In a step every decoding sequence gets one token, and at most ``chunk_tokens`` prompt tokens
of newer sequences are prefilled beside them, which makes that step longer. Nothing here reads a clock: callers say
what time it is, so the model is tested with plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an engine is.

    Attributes:
        ttft_s: Fixed time from taking a slot to the start of prefill, seconds.
        itl_s: Length of a decode step of at most ``batch_knee`` sequences, seconds.
        slots: Most sequences in the batch; the others wait, first come, first served.
        prefill_tokens_per_s: Prompt tokens per second.
        batch_knee: Above so many decoding sequences a step takes longer in proportion to their number.
        jitter_ratio: Every step is longer or shorter by up to this share, 0 to less than 1.
        chunk_tokens: Most prompt tokens prefilled in one step.
    """

    ttft_s: float = 0.05
    itl_s: float = 0.02
    slots: int = 8
    prefill_tokens_per_s: float = 4000.0
    batch_knee: int = 8
    jitter_ratio: float = 0.0
    chunk_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one sequence, ``at_s`` on the caller's clock."""

    sequence: int
    at_s: float
    last: bool
    admitted_s: float
    """When the sequence got its slot."""


@dataclass(slots=True)
class _Sequence:
    prompt_tokens: int
    output_tokens: int
    admitted_s: float = 0.0
    ready_s: float = 0.0
    prefilled: int = 0
    generated: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    ends_s: float
    decoding: list[int]
    prefilling: dict[int, int]  # sequence -> prompt tokens


class Batch:
    """The sequences of one engine. Times given to its methods must not go back; ``advance`` first, then change."""

    def __init__(self, pace: Pace, seed: int = 0) -> None:
        self._pace = pace
        self._random = Random(seed)
        self._numbers = count()
        self._waiting: dict[int, _Sequence] = {}
        self._running: dict[int, _Sequence] = {}
        self._step: _Step | None = None

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values the running sequences hold."""
        return sum(sequence.prefilled + sequence.generated for sequence in self._running.values())

    @property
    def promised_tokens(self) -> int:
        """Tokens that the running sequences will hold at their ends."""
        return sum(sequence.prompt_tokens + sequence.output_tokens for sequence in self._running.values())

    def is_waiting(self, number: int) -> bool:
        """Whether a sequence is in the queue."""
        return number in self._waiting

    def submit(self, now_s: float, prompt_tokens: int, output_tokens: int) -> int:
        """Adds a sequence of at least one prompt and one output token. Returns its number."""
        number = next(self._numbers)
        self._waiting[number] = _Sequence(max(1, prompt_tokens), max(1, output_tokens))
        self._admit(now_s)
        return number

    def abort(self, now_s: float, number: int) -> None:
        """Forgets a sequence, wherever it is, and gives its slot on. Does nothing if it has finished."""
        self._waiting.pop(number, None)
        self._running.pop(number, None)
        self._admit(now_s)

    def next_s(self) -> float | None:
        """When something happens next, or None while the engine is idle."""
        if self._step is not None:
            return self._step.ends_s
        return min((sequence.ready_s for sequence in self._running.values()), default=None)

    def advance(self, now_s: float) -> list[Token]:
        """Does every step that ends by ``now_s``. Returns the tokens, oldest first."""
        tokens: list[Token] = []
        while (at_s := self.next_s()) is not None and at_s <= now_s:
            if self._step is not None:
                tokens += self._finish(self._step)
            self._begin(at_s)
        return tokens

    def _admit(self, now_s: float) -> None:
        while self._waiting and len(self._running) < self._pace.slots:
            number = next(iter(self._waiting))
            sequence = self._running[number] = self._waiting.pop(number)
            sequence.admitted_s = now_s
            sequence.ready_s = now_s + self._pace.ttft_s

    def _begin(self, now_s: float) -> None:
        pace, room = self._pace, self._pace.chunk_tokens
        decoding: list[int] = []
        prefilling: dict[int, int] = {}
        for number, sequence in self._running.items():
            left = sequence.prompt_tokens - sequence.prefilled
            if left == 0:
                decoding.append(number)
            elif room and sequence.ready_s <= now_s:
                prefilling[number] = min(left, room)
                room -= prefilling[number]
        if not decoding and not prefilling:
            self._step = None
            return
        decode_s = pace.itl_s * max(1.0, len(decoding) / pace.batch_knee) if decoding else 0.0
        prefill_s = (pace.chunk_tokens - room) / pace.prefill_tokens_per_s
        stretch = 1.0 + self._random.uniform(-pace.jitter_ratio, pace.jitter_ratio)
        self._step = _Step(now_s + (decode_s + prefill_s) * stretch, decoding, prefilling)

    def _finish(self, step: _Step) -> list[Token]:
        tokens: list[Token] = []
        for number in (*step.decoding, *step.prefilling):
            sequence = self._running.get(number)
            if sequence is None:  # aborted during the step
                continue
            sequence.prefilled += step.prefilling.get(number, 0)
            if sequence.prefilled < sequence.prompt_tokens:
                continue
            sequence.generated += 1
            last = sequence.generated == sequence.output_tokens
            tokens.append(Token(number, step.ends_s, last, sequence.admitted_s))
            if last:
                del self._running[number]
        self._admit(step.ends_s)
        return tokens
