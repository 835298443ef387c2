"""What policies read and answer: frozen snapshots in, choices out.

Named tuples, because several are made for every request: a frozen dataclass of as many fields takes five times as long
to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

Health = Literal["healthy", "half_open", "loading", "ejected", "draining"]
HEALTHS: tuple[Health, ...] = get_args(Health)
Header = tuple[bytes, bytes]
NOTHING: frozenset[str] = frozenset()
NO_TOKENS: Mapping[str, int] = MappingProxyType({})
FRESH_S = 10.0
"""For so long an engine's word counts that it has requests waiting."""


class EndpointSnapshot(NamedTuple):
    """One endpoint as routing sees it. What Weir counts itself is exact; what is None is not known.

    Attributes:
        endpoint_id: Unique in the process.
        health: Only ``healthy`` ones take traffic, and ``half_open`` ones a request for trial.
        in_flight: Requests of ours that are open there now.
        capabilities: What its engine can do, by name.
        weight: Its configured share under weighted policies; more than 0.
        pending: Those of ``in_flight`` without a first output.
        pending_tokens: Tokens of their prompts that its cache is not believed to hold, estimated.
        oldest_s: When the oldest of them was sent, monotonic.
        oldest_tokens: Its part of ``pending_tokens``.
        held_tokens: Prompt tokens of all in flight, estimated.
        answers: First outputs that came since it last came to life, and whole answers that showed none.
        ttft_s: From an attempt sent to its first output, smoothed.
        itl_s: Time an output token after the first, smoothed.
        running: Requests that its engine said it works on.
        waiting: Requests that its engine said it has in its queue.
        kv_usage_ratio: Share of its cache that its engine said is in use.
        sampled_s: When the engine was asked for these three, monotonic.
        learnt: What the pool's policy has learnt of it, in that policy's own type.
        slots: Requests that its engine said it works on at once.
        load_penalty_s: What a request there waits for the model to be loaded; 0 if it is, or may be.
        busy_until_s: Until when its engine asked for patience (Retry-After), monotonic; None if it did not.
        fruitless: Requests in a row that ended there without an answer; 0 again with the next output.
    """

    endpoint_id: str
    health: Health
    in_flight: int
    capabilities: frozenset[str] = NOTHING
    weight: float = 1.0
    pending: int = 0
    pending_tokens: int = 0
    oldest_s: float | None = None
    oldest_tokens: int = 0
    held_tokens: int = 0
    answers: int = 0
    ttft_s: float | None = None
    itl_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None
    sampled_s: float | None = None
    learnt: Any = None
    slots: int | None = None
    load_penalty_s: float = 0.0
    busy_until_s: float | None = None
    fruitless: int = 0

    def has_queue(self, now_s: float) -> bool:
        """Whether its engine has said lately that it has requests waiting."""
        return bool(self.waiting) and self.sampled_s is not None and now_s - self.sampled_s <= FRESH_S


class PoolView(NamedTuple):
    """A pool at one moment.

    Attributes:
        now_s: Monotonic time.
        sequence: Decisions made for this pool so far.
        endpoints: All of them, eligible or not, in the order of the configuration.
        seed: 64 random bits: the only chance that a policy knows.
    """

    now_s: float
    sequence: int
    endpoints: tuple[EndpointSnapshot, ...]
    seed: int = 0


class RouteQuery(NamedTuple):
    """What is known of the request.

    Attributes:
        tried: Endpoints that it has tried already.
        needed: What an engine must be able to do to serve it; nothing, mostly.
        prompt_tokens: Of its prompt, estimated.
        blocks: The hash of its prompt's first block; none if it is shorter, or if nobody asks.
        cached_tokens: By endpoint: tokens of its prompt that the endpoint's cache is believed to hold; only those
            that hold some.
        session: What its client calls its session; None if it names none, or if nobody asks.
        headers: Those of the client's headers that rules name.
        model: The model as the client named it.
    """

    tried: frozenset[str] = NOTHING
    needed: frozenset[str] = NOTHING
    prompt_tokens: int = 0
    blocks: tuple[int, ...] = ()
    cached_tokens: Mapping[str, int] = NO_TOKENS
    session: bytes | None = None
    headers: tuple[Header, ...] = ()
    model: str = ""


NO_QUERY = RouteQuery()


class Choice(NamedTuple):
    """Where to, and why in words for the trace."""

    endpoint_id: str
    reason: str


class RoutingPolicy(Protocol):
    """One that asks for ``blocks`` and ``cached_tokens`` says so: ``uses_prefixes: ClassVar[bool] = True``."""

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        """Returns an eligible endpoint, or None if there is none. Same view and query, same choice."""
        ...


class FirstOutput(NamedTuple):
    """The first output of an attempt has come. Times are monotonic.

    Attributes:
        prompt_tokens: Of its prompt, estimated.
        uncached_tokens: Those of them that the cache was not believed to hold.
        ahead: Requests of ours without a first output when it was sent.
        ahead_tokens: Their tokens that the cache was not believed to hold.
        held_tokens: Prompt tokens of all of ours that were open when it was sent.
        in_flight: Requests of ours that are open now, this one included.
    """

    sent_s: float
    at_s: float
    prompt_tokens: int
    uncached_tokens: int
    ahead: int
    ahead_tokens: int
    held_tokens: int
    in_flight: int


class Answered(NamedTuple):
    """An attempt was answered whole. Times are monotonic.

    Attributes:
        first_output_s: None if that cannot be told from the answer.
        prompt_tokens: As the engine counted them; None if it did not.
        cached_tokens: Those of them that its cache held, likewise.
        output_tokens: Of the answer, as the engine counted them, else the chunks.
        token_s: Time an output token after the first; None if that cannot be told.
    """

    sent_s: float
    at_s: float
    first_output_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int
    token_s: float | None


@runtime_checkable
class Learner(Protocol):
    """A policy that learns of each endpoint: pure steps from what is known, None at first, to what is known then."""

    def first_output(self, known: Any, sample: FirstOutput) -> Any: ...

    def answered(self, known: Any, sample: Answered) -> Any: ...


_health = itemgetter(EndpointSnapshot._fields.index("health"))
_busy_until_s = itemgetter(EndpointSnapshot._fields.index("busy_until_s"))
_ALL_HEALTHY = {"healthy"}


def eligible(view: PoolView, query: RouteQuery) -> list[EndpointSnapshot]:
    """The endpoints that can do what the request needs and that it has not tried.

    They are healthy, or half open and without a request of ours: the next one there is their trial. Those whose engines
    asked for patience are among them only if there is no other.
    """
    found, tried, needed = list(view.endpoints), query.tried, query.needed
    if needed:
        found = [e for e in found if needed <= e.capabilities]
    if set(map(_health, found)) != _ALL_HEALTHY:
        found = [e for e in found if e.health == "healthy" or (e.health == "half_open" and not e.in_flight)]
    if tried:
        found = [e for e in found if e.endpoint_id not in tried]
    if not any(map(_busy_until_s, found)):
        return found
    return [e for e in found if e.busy_until_s is None or e.busy_until_s <= view.now_s] or found
