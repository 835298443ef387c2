"""What of ours is open at one endpoint, and what its answers teach a policy about it."""

from __future__ import annotations

from typing import Any, Protocol

from adapters.types import Unsupported
from policies.named_tuples import named
from policies.types import Answered, EndpointSnapshot, FirstOutput, Learner
from policies.wedge import Slowest

_GAIN = 0.2


class Outputs(Protocol):
    """What is under way for a lease, once it has been sent.

    Attributes:
        output_s: When its last output came; None before any, and of an answer whose outputs cannot be told.
        awaits_first_s: When it was sent, if it is a stream without any output yet; else None.
    """

    @property
    def output_s(self) -> float | None: ...

    @property
    def awaits_first_s(self) -> float | None: ...

    def give_up(self) -> None:
        """Ends the wait for a first output: there will be none. Nothing happens if there was one."""
        ...


class OwnLoad:
    """Counts what is open at one endpoint; exact, for every way out of a lease gives back what it took.

    Attributes:
        open: All leases under way.
        held_tokens: Tokens of their prompts, estimated.
        pending: Those without a first output, the oldest first.
        pending_tokens: Tokens of those prompts that its cache is not believed to hold.
        answers: First outputs that came since it last came to life, and whole answers that showed none.
        fruitless: Attempts in a row that ended without either; none that was not sent, for its engine cannot do it.
        ttft_s: From an attempt sent to its first output; smoothed, None before any.
        itl_s: Time an output token after the first, likewise.
        slowest: Its slowest recent first outputs; None before any.
        output_s: When the last output of what is no longer open came, or a first one; monotonic, None before any.
        newest_s: When the newest of those was taken whose first output has come, monotonic.
        learnt: What the pool's policy has learnt of it, in that policy's own type; None before anything.
        seen: The snapshot that was made of the endpoint; None once anything in it has changed.
    """

    __slots__ = (
        "answers",
        "fruitless",
        "held_tokens",
        "itl_s",
        "learner",
        "learnt",
        "newest_s",
        "open",
        "output_s",
        "pending",
        "pending_tokens",
        "seen",
        "slowest",
        "ttft_s",
    )

    def __init__(self, learner: Learner | None = None) -> None:
        self.learner = learner
        self.open: set[Lease] = set()
        self.held_tokens = 0
        self.pending: dict[Lease, None] = {}
        self.pending_tokens = 0
        self.answers = 0
        self.fruitless = 0
        self.ttft_s: float | None = None
        self.itl_s: float | None = None
        self.slowest: Slowest | None = None
        self.output_s: float | None = None
        self.newest_s = 0.0
        self.learnt: Any = None
        self.seen: EndpointSnapshot | None = None

    @property
    def in_flight(self) -> int:
        """Attempts open now."""
        return len(self.open)

    def lease(self, prompt_tokens: int, uncached_tokens: int, now_s: float) -> Lease:
        """Returns one attempt's share of the load, to be held in a ``with`` block.

        Args:
            prompt_tokens: Of its prompt, estimated.
            uncached_tokens: Those of them that the endpoint's cache is not believed to hold.
            now_s: Monotonic.
        """
        return Lease(self, prompt_tokens, uncached_tokens, now_s)

    def revived(self) -> None:
        """The endpoint has come to life again: what it answered before says little of how it answers now."""
        self.answers = self.fruitless = 0
        self.seen = None

    def restarted(self) -> None:
        """Its engine was started anew, or is another one: how slow it may be is to be found out again."""
        self.slowest = None


class Lease:
    """One attempt's share of an endpoint's load, for as long as a ``with`` block runs, however it ends.

    Attributes:
        outputs: What tells of its outputs; None before it is sent, and after the block.
    """

    __slots__ = (
        "_found",
        "_load",
        "_showed",
        "outputs",
        "prompt_tokens",
        "taken_s",
        "uncached_tokens",
    )

    def __init__(self, load: OwnLoad, prompt_tokens: int, uncached_tokens: int, taken_s: float) -> None:
        self._load = load
        self.prompt_tokens = prompt_tokens
        self.uncached_tokens = uncached_tokens
        self.taken_s = taken_s
        self.outputs: Outputs | None = None
        self._showed = False

    def __enter__(self) -> Lease:
        load = self._load
        pending, pending_tokens, held_tokens = load.pending, load.pending_tokens, load.held_tokens
        self._found = len(pending), pending_tokens, held_tokens
        load.held_tokens = held_tokens + self.prompt_tokens
        load.open.add(self)
        pending[self] = None
        load.pending_tokens = pending_tokens + self.uncached_tokens
        load.seen = None
        return self

    def __exit__(self, kind: object, failure: BaseException | None, traceback: object) -> None:
        load, outputs = self._load, self.outputs
        load.held_tokens -= self.prompt_tokens
        load.open.discard(self)
        if outputs is not None:
            output_s = outputs.output_s
            if output_s is not None:
                load.output_s = max(load.output_s or output_s, output_s)
            self.outputs = None
        if not self._showed:
            del load.pending[self]
            load.pending_tokens -= self.uncached_tokens
            if not isinstance(failure, Unsupported):  # its engine was not even asked
                load.fruitless += 1  # unless it is told that all was well
        load.seen = None

    def first_output(self, sent_s: float, now_s: float) -> None:
        """The first output has come; to be told once, while the block runs."""
        load = self._load
        del load.pending[self]
        load.pending_tokens -= self.uncached_tokens
        self._showed = True
        load.answers += 1
        load.fruitless = 0
        load.output_s = now_s
        load.newest_s = max(load.newest_s, self.taken_s)
        load.ttft_s = _smoothed(load.ttft_s, now_s - sent_s)
        load.slowest = Slowest.after(load.slowest, now_s - sent_s, self.uncached_tokens)
        if load.learner is not None:
            sample = (sent_s, now_s, self.prompt_tokens, self.uncached_tokens, *self._found, len(load.open))
            load.learnt = load.learner.first_output(load.learnt, named(FirstOutput, sample))
        load.seen = None

    def served(self, sample: Answered | None) -> None:
        """The attempt ended well, and the block is over: whatever it was, the endpoint works.

        Args:
            sample: What the whole answer tells; None if it was no answer of a model.
        """
        load = self._load
        load.fruitless = 0
        if not self._showed:
            load.answers += 1
        load.seen = None
        if sample is None:
            return
        at_s, token_s, learner = sample.at_s, sample.token_s, load.learner
        load.output_s = max(load.output_s or at_s, at_s)
        if token_s is not None:
            load.itl_s = _smoothed(load.itl_s, token_s)
        if learner is not None:
            load.learnt = learner.answered(load.learnt, sample)

    def overtaken_since(self, at_s: float) -> bool:
        """Whether an attempt at the endpoint that was taken after then has had its first output."""
        return self._load.newest_s > at_s


def _smoothed(known: float | None, sample: float) -> float:
    return sample if known is None else known + _GAIN * (sample - known)
