"""One choice of an endpoint, and what it was made from."""

from __future__ import annotations

from time import perf_counter

from policies.named_tuples import named
from policies.types import RouteQuery

from .flight import AttemptRecord, Decision
from .pool import Pool
from .trace_context import new_span_id


def chosen(pool: Pool, query: RouteQuery, began_s: float) -> AttemptRecord | None:
    """Returns the attempt that is to be made; None if no endpoint may make it.

    Args:
        pool: Whose endpoints there are.
        query: What is known of the request.
        began_s: Since when it is being decided, monotonic.
    """
    view = pool.view()
    choice = pool.choose(view, query)
    if choice is None:
        return None
    chosen_s = perf_counter()
    return AttemptRecord(
        choice.endpoint_id,
        choice.reason,
        chosen_s,
        chosen_s - began_s,
        new_span_id(),
        named(Decision, (view, query)) if pool.notes.take(chosen_s) else None,
    )
