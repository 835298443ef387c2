"""Pool views for tests: short to write, and drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from policies.types import HEALTHS, EndpointSnapshot, Health, PoolView, RouteQuery

ABILITIES = ("tools", "n", "images")


def view(*in_flight: int, sequence: int = 0, health: tuple[Health, ...] = ()) -> PoolView:
    """Endpoints e0, e1, ... with these counts; those without a given health are healthy."""
    states = [*health, *["healthy"] * (len(in_flight) - len(health))]
    endpoints = [
        EndpointSnapshot(f"e{i}", state, count)  # type: ignore[arg-type]
        for i, (state, count) in enumerate(zip(states, in_flight, strict=True))
    ]
    return PoolView(1.0, sequence, tuple(endpoints))


def views() -> st.SearchStrategy[PoolView]:
    endpoint = st.tuples(st.sampled_from(HEALTHS), st.integers(0, 5), st.frozensets(st.sampled_from(ABILITIES)))

    def build(drawn: list[tuple[Health, int, frozenset[str]]], sequence: int) -> PoolView:
        made = (EndpointSnapshot(f"e{i}", *fields) for i, fields in enumerate(drawn))
        return PoolView(float(sequence), sequence, tuple(made))

    return st.builds(build, st.lists(endpoint, max_size=8), st.integers(0, 10_000))


def queries() -> st.SearchStrategy[RouteQuery]:
    """Requests that have tried some of the endpoints e0 to e9, and mostly need nothing."""
    return st.builds(
        RouteQuery,
        st.frozensets(st.sampled_from([f"e{i}" for i in range(10)])),
        st.just(frozenset[str]()) | st.frozensets(st.sampled_from(ABILITIES)),
    )
