"""Pool views for tests: short to write, and drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import strategies as st

from policies.types import HEALTHS, EndpointSnapshot, FirstOutput, Health, Learner, PoolView, RouteQuery, RoutingPolicy

ABILITIES = ("tools", "n", "images")
IDS = tuple(f"e{i}" for i in range(10))
COUNTS = st.integers(0, 5)
TOKENS = st.integers(0, 100_000)
AT_S = st.floats(0, 10_000)

Lessons = Mapping[str, list[FirstOutput]]


def view(
    *in_flight: int,
    sequence: int = 0,
    health: tuple[Health, ...] = (),
    weights: tuple[float, ...] = (),
    seed: int = 0,
) -> PoolView:
    """Endpoints e0, e1, ... with these counts; those without a given health or weight are healthy and weigh 1."""
    states = [*health, *["healthy"] * (len(in_flight) - len(health))]
    weigh = [*weights, *[1.0] * (len(in_flight) - len(weights))]
    endpoints = [
        EndpointSnapshot(f"e{i}", state, count, weight=weight)  # type: ignore[arg-type]
        for i, (state, count, weight) in enumerate(zip(states, in_flight, weigh, strict=True))
    ]
    return PoolView(1.0, sequence, tuple(endpoints), seed)


def with_fields(of: PoolView, **fields: tuple[object, ...]) -> PoolView:
    """The same view with these fields, one value an endpoint."""
    endpoints = list(of.endpoints)
    for name, values in fields.items():
        endpoints = [e._replace(**{name: value}) for e, value in zip(endpoints, values, strict=True)]  # type: ignore[arg-type]
    return of._replace(endpoints=tuple(endpoints))


def _known(chance: random.Random) -> EndpointSnapshot:
    """What may be told of an endpoint beside what hypothesis draws; half of what may be missing is."""

    def some(value: float) -> float | None:
        return value if chance.random() < 0.5 else None

    def count(most: int = 5) -> int:
        return chance.randint(0, most)

    oldest_tokens, pending_tokens, held_tokens = sorted(count(100_000) for _ in range(3))
    return EndpointSnapshot(
        "e0",
        "healthy",
        0,
        pending=count(),
        pending_tokens=pending_tokens,
        oldest_s=chance.uniform(0, 10_000),
        oldest_tokens=oldest_tokens,
        held_tokens=held_tokens,
        answers=count(),
        ttft_s=some(chance.uniform(0, 60)),
        itl_s=some(chance.uniform(0, 1)),
        running=chance.choice((None, count())),
        waiting=chance.choice((None, count())),
        kv_usage_ratio=some(chance.random()),
        sampled_s=some(chance.uniform(0, 10_000)),
    )


# Drawing every field of every endpoint would take most of a test's time.
_CHANCE = random.Random(1)
_KNOWN = [EndpointSnapshot("e0", "healthy", 0), *(_known(_CHANCE) for _ in range(100))]


def _loaded(known: EndpointSnapshot, in_flight: int, now_s: float) -> EndpointSnapshot:
    """The same with so many in flight; nothing in it contradicts that, or is of the future."""
    pending = min(known.pending, in_flight)
    oldest_s, sampled_s = known.oldest_s, known.sampled_s
    return known._replace(
        in_flight=in_flight,
        held_tokens=known.held_tokens if in_flight else 0,
        pending=pending,
        pending_tokens=known.pending_tokens if pending else 0,
        oldest_s=min(oldest_s or 0.0, now_s) if pending else None,
        oldest_tokens=known.oldest_tokens if pending else 0,
        sampled_s=None if sampled_s is None else min(sampled_s, now_s),
    )


def views() -> st.SearchStrategy[PoolView]:
    endpoint = st.tuples(
        st.sampled_from(_KNOWN),
        st.sampled_from(HEALTHS),
        COUNTS,
        st.frozensets(st.sampled_from(ABILITIES)),
        st.sampled_from([1.0, 1.0, 0.001, 0.5, 3.0, 1e6]),
    )

    def build(
        drawn: list[tuple[EndpointSnapshot, Health, int, frozenset[str], float]], now_s: float, sequence: int, seed: int
    ) -> PoolView:
        made = [
            _loaded(known, count, now_s)._replace(endpoint_id=f"e{i}", health=health, capabilities=able, weight=weight)
            for i, (known, health, count, able, weight) in enumerate(drawn)
        ]
        return PoolView(now_s, sequence, tuple(made), seed)

    return st.builds(build, st.lists(endpoint, max_size=8), AT_S, st.integers(0, 10_000), st.integers(0, 2**64 - 1))


def queries() -> st.SearchStrategy[RouteQuery]:
    """Requests that have tried some of the endpoints e0 to e9, and mostly need nothing."""
    return st.builds(
        RouteQuery,
        st.frozensets(st.sampled_from(IDS)),
        st.just(frozenset[str]()) | st.frozensets(st.sampled_from(ABILITIES)),
        TOKENS,
        st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(IDS), st.integers(1, 10_000), max_size=4),
        st.none() | st.binary(min_size=1, max_size=8),
        st.lists(st.sampled_from([(b"x-team", b"a"), (b"x-team", b"b"), (b"x-tier", b"1")]), max_size=2).map(tuple),
        st.sampled_from(["m", "alias"]),
    )


def _lesson(chance: random.Random) -> FirstOutput:
    sent_s, tokens = chance.uniform(0, 10_000), chance.randint(0, 100_000)
    return FirstOutput(
        sent_s,
        sent_s + chance.choice((0.0, 0.1, 60.0)) * chance.random(),
        tokens,
        chance.randint(0, tokens),
        chance.randint(0, 5),
        chance.randint(0, 100_000),
        chance.randint(0, 100_000),
        chance.randint(1, 5),
    )


_LESSONS = [_lesson(_CHANCE) for _ in range(100)]


def lessons() -> st.SearchStrategy[Lessons]:
    """First outputs of some of the endpoints e0 to e9, in the order of their times."""
    series = st.lists(st.sampled_from(_LESSONS), max_size=3).map(lambda drawn: sorted(drawn, key=lambda s: s.at_s))
    return st.dictionaries(st.sampled_from(IDS), series, max_size=4)


def taught(policy: RoutingPolicy, of: PoolView, lessons: Lessons) -> PoolView:
    """The same view after the policy, if it learns, has learnt these of its endpoints."""
    if not isinstance(policy, Learner):
        return of
    known: dict[str, object] = {}
    for endpoint_id, samples in lessons.items():
        for sample in samples:
            known[endpoint_id] = policy.first_output(known.get(endpoint_id), sample)
    return of._replace(endpoints=tuple(e._replace(learnt=known.get(e.endpoint_id)) for e in of.endpoints))
