"""Which traces are kept: a share of all, decided before a request, and on top of it those that turn out to matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from .types import Header

KeepReason = Literal["head", "rule", "error", "retry", "slow_ttft", "slow", "stall"]

# An operator asked for every one of these; the others come in storms, and are bounded.
UNBOUNDED: frozenset[KeepReason] = frozenset(("head", "rule"))
_ID_BITS = 64


@dataclass(frozen=True, slots=True)
class HeadSampling:
    """The decision on a new trace; the same for every service that samples by this ratio, for it is in the id.

    Attributes:
        ratio: Share of the new traces, 0 to 1.
        trusts_parent: A caller's trace is gone on with; else its context is ignored and a new trace begun.
        follows_parent: A trace that is gone on with is sampled if its caller says so; else by its id.
    """

    ratio: float
    trusts_parent: bool = True
    follows_parent: bool = True

    @property
    def bound(self) -> int:
        """A trace is sampled if the low 64 bits of its id are less than this."""
        return round(self.ratio * (1 << _ID_BITS))


class TraceFacts(NamedTuple):
    """What a closed request says of whether its trace matters.

    Attributes:
        sampled: Decided at its head.
        failed: Refused for want of room, or failed by the engine's fault or ours.
        attempts: Engines tried.
        ttft_s: Until the first token or, without one, until the client left or was told; None for what is no stream.
        longest_gap_s: Longest silence between two outputs.
        headers: Those of the client's headers that rules name.
        prompt_tokens: As the engine counted them, else estimated.
        tokens: Of prompt and answer together.
        key: Number of the key that the client sent, among those that rules name; 0 for none of them.
    """

    sampled: bool
    pool: str
    model: str
    failed: bool
    attempts: int
    ttft_s: float | None
    duration_s: float
    longest_gap_s: float
    headers: tuple[Header, ...] = ()
    prompt_tokens: int = 0
    tokens: int = 0
    key: int = 0


@dataclass(frozen=True, slots=True)
class ClassRule:
    """A class of requests. A condition that is None or 0, or has no headers, is met by all."""

    pool: str | None = None
    model: str | None = None
    headers: tuple[Header, ...] = ()
    min_prompt_tokens: int = 0
    min_tokens: int = 0
    key: int = 0

    def matches(self, facts: TraceFacts) -> bool:
        return (
            (self.pool is None or self.pool == facts.pool)
            and (self.model is None or self.model == facts.model)
            and facts.prompt_tokens >= self.min_prompt_tokens
            and facts.tokens >= self.min_tokens
            and self.key in (0, facts.key)
            and all(header in facts.headers for header in self.headers)
        )


@dataclass(frozen=True, slots=True)
class KeepRules:
    """What is kept at the end. A limit of 0 keeps nothing for it.

    Attributes:
        slow_ttft_s: A longer wait for the first token is slow.
        slow_s: A longer request is slow.
        stall_s: A longer silence is a stall.
    """

    slow_ttft_s: float = 2.0
    slow_s: float = 0.0
    stall_s: float = 1.0
    classes: tuple[ClassRule, ...] = ()


def keep_reason(facts: TraceFacts, rules: KeepRules) -> KeepReason | None:
    """Returns why the trace is kept, or None. ``head`` comes first: only those traces hold the engine's spans too."""
    if facts.sampled:
        return "head"
    if rules.classes and any(rule.matches(facts) for rule in rules.classes):
        return "rule"
    if facts.failed:
        return "error"
    if facts.attempts > 1:
        return "retry"
    if facts.ttft_s is not None and facts.ttft_s > rules.slow_ttft_s > 0:
        return "slow_ttft"
    if facts.duration_s > rules.slow_s > 0:
        return "slow"
    if facts.longest_gap_s > rules.stall_s > 0:
        return "stall"
    return None


@dataclass(slots=True)
class PerSecond:
    """Lets so many pass in a second, and as many at once after a pause. The time is an argument."""

    most: int
    _left: float = 0.0
    _at_s: float = float("-inf")

    def take(self, now_s: float) -> bool:
        """Returns whether one more may pass, and counts it if so. ``now_s`` never goes back."""
        self._left = min(self.most, self._left + (now_s - self._at_s) * self.most)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
