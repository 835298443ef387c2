"""How long the answers of a pool usually are silent, and from when on a silence is none that it knows."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from .engine_pace import prompt_size
from .named_tuples import named
from .quantile import LogHistogram

# A silence that is ten times as long as all but one in a hundred, and this long, is no slowness of the usual kind.
FACTOR = 10.0
QUANTILE = 0.99
LEAST_S = 5.0
SAMPLES_NEEDED = 100
# Quantiles are looked up anew after so many samples.
_EVERY = 64


class SilenceLimits(NamedTuple):
    """From when on a silence is unheard of; ``inf`` where too little is known.

    Attributes:
        first_token_s: From the attempt sent to its first output.
        stall_s: Between two outputs.
    """

    first_token_s: float
    stall_s: float


class _Learnt:
    """Durations of one kind, and the limit that follows from them."""

    __slots__ = ("_next_look", "limit_s", "waits")

    def __init__(self) -> None:
        self.waits = LogHistogram()
        self.limit_s = inf
        self._next_look = SAMPLES_NEEDED

    def add(self, duration_s: float) -> None:
        waits = self.waits
        waits.add(duration_s)
        if waits.samples >= self._next_look:
            self._next_look = waits.samples + _EVERY
            self.limit_s = max(LEAST_S, FACTOR * waits.quantile_s(QUANTILE))


class UsualWaits:
    """What the answers of one pool took: first outputs by the size of the prompt, and each answer's longest gap.

    Memory is bounded by the sizes there are. Streams and whole answers are apart: many engines show of a whole answer
    its end alone.
    """

    __slots__ = ("_first", "_gaps")

    def __init__(self) -> None:
        self._first: dict[tuple[bool, int], _Learnt] = {}
        self._gaps = _Learnt()

    def first_output(self, stream: bool, prompt_tokens: int, wait_s: float) -> None:
        """An attempt gave its first output after so long, or was ended after so long without one."""
        kind = stream, prompt_size(prompt_tokens)
        learnt = self._first.get(kind)
        if learnt is None:
            learnt = self._first[kind] = _Learnt()
        learnt.add(wait_s)

    def longest_gap(self, gap_s: float) -> None:
        """A stream was answered whole, with this longest silence inside."""
        self._gaps.add(gap_s)

    def first_outputs(self, stream: bool, prompt_tokens: int) -> LogHistogram | None:
        """Returns what such prompts took; None if there were none."""
        learnt = self._first.get((stream, prompt_size(prompt_tokens)))
        return None if learnt is None else learnt.waits

    def limits(self, stream: bool, prompt_tokens: int) -> SilenceLimits | None:
        """Returns the limits for such a prompt; None if nothing is known."""
        learnt = self._first.get((stream, prompt_size(prompt_tokens)))
        first_s, stall_s = inf if learnt is None else learnt.limit_s, self._gaps.limit_s
        return None if first_s == stall_s == inf else named(SilenceLimits, (first_s, stall_s))
