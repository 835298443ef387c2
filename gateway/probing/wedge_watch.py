"""Background: looks four times a second for endpoints at which requests wait and from which nothing comes."""

from __future__ import annotations

import asyncio
from time import perf_counter

from policies.wedge import FLOOR_S, SEVERAL, Slowest, Waiting, is_wedged

from ..endpoint import Endpoint
from ..fleet import Fleet
from ..pool import Pool

PERIOD_S = 0.25

_SLEPT_S = 1.0


class WedgeWatch:
    """Looks from ``start`` to ``stop``. Nothing is done for it when a chunk comes: streams keep the time themselves."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = perf_counter()

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self.start)
        now_s = perf_counter()
        slept, self._looked_s = now_s - self._looked_s > _SLEPT_S, now_s
        if slept:  # the silence may be of our own making: what came meanwhile has yet to be read
            return
        for pool in self._fleet.pools.values():
            for endpoint in pool.endpoints.values():
                _look(pool, endpoint, now_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _look(pool: Pool, endpoint: Endpoint, now_s: float) -> None:
    own, state = endpoint.own, endpoint.health
    needed = 1 if state.on_trial else SEVERAL
    oldest = next(iter(own.pending), None)
    if len(own.pending) < needed or oldest is None or now_s - oldest.taken_s < FLOOR_S:
        return
    if state.name not in ("healthy", "half_open"):
        return
    peers = [other.own.slowest for other in pool.endpoints.values() if other is not endpoint]
    loads_since_s = endpoint.loads_since_s
    if is_wedged(waiting(endpoint), own.slowest, _slowest(peers), now_s, needed=needed, loads_since_s=loads_since_s):
        pool.wedged(endpoint)
        if endpoint.health.name == "ejected":
            _give_up(endpoint)


def _give_up(endpoint: Endpoint) -> None:
    """Whoever has nothing yet need not wait for a time-out: another endpoint may serve it."""
    for lease in list(endpoint.own.pending):
        if lease.outputs is not None:
            lease.outputs.give_up()


def waiting(endpoint: Endpoint) -> Waiting:
    """Returns what waits at an endpoint, and when anything came from it last."""
    own = endpoint.own
    sent: list[float] = []
    prompt_tokens = 0
    for lease in own.pending:
        if lease.outputs is not None and (sent_s := lease.outputs.awaits_first_s) is not None:
            sent.append(sent_s)
            prompt_tokens = max(prompt_tokens, lease.uncached_tokens)
    outputs = [lease.outputs.output_s for lease in own.open if lease.outputs is not None]
    heard = [output_s for output_s in (own.output_s, *outputs) if output_s is not None]
    return Waiting(tuple(sorted(sent)), prompt_tokens, max(heard, default=None))


def _slowest(peers: list[Slowest | None]) -> Slowest | None:
    known = [slowest for slowest in peers if slowest is not None]
    return max(known, default=None)
