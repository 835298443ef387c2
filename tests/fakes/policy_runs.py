"""A policy at work in virtual time: requests that arrive, take as long as their endpoint does, and teach it."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from policies.types import EndpointSnapshot, FirstOutput, Learner, PoolView, RouteQuery, RoutingPolicy

BUSY_S = 0.05


@dataclass(frozen=True, slots=True)
class Machine:
    """An endpoint.

    Attributes:
        ttft_s: What a request takes there in the mean, to the first token and to the end; chance makes it up to a half
            more or less.
        weight: As configured.
        fails: Each request fails at once.
    """

    ttft_s: float = 0.2
    weight: float = 1.0
    fails: bool = False


def stranger(number: int) -> RouteQuery:
    """A request that has nothing in common with any other."""
    return RouteQuery(prompt_tokens=100, blocks=(number * 7919,), session=b"session %d" % number)


def run(
    policy: RoutingPolicy,
    machines: Mapping[str, Machine],
    requests: int = 400,
    every_s: float = BUSY_S,
    query: Callable[[int], RouteQuery] = stranger,
) -> Counter[str]:
    """Sends so many requests, one each ``every_s``; returns how many each endpoint got."""
    got: Counter[str] = Counter()
    chance = random.Random(7)
    fleet = {name: EndpointSnapshot(name, "healthy", 0, weight=m.weight) for name, m in machines.items()}
    ends: list[tuple[float, str, FirstOutput]] = []
    for number in range(requests):
        now_s = number * every_s
        while ends and ends[0][0] <= now_s:
            _, name, sample = heapq.heappop(ends)
            fleet[name] = _answered(policy, fleet[name], sample)
        asked = query(number)
        choice = policy.choose(PoolView(now_s, number, tuple(fleet.values()), chance.getrandbits(64)), asked)
        assert choice is not None
        name, machine, seen = choice.endpoint_id, machines[choice.endpoint_id], fleet[choice.endpoint_id]
        got[name] += 1
        if machine.fails:
            fleet[name] = seen._replace(fruitless=seen.fruitless + 1)
        else:
            at_s, tokens = now_s + machine.ttft_s * (0.5 + chance.random()), asked.prompt_tokens
            fleet[name] = _loaded(seen, 1, tokens)
            ahead = seen.in_flight, seen.pending_tokens, seen.held_tokens
            heapq.heappush(ends, (at_s, name, FirstOutput(now_s, at_s, tokens, tokens, *ahead, seen.in_flight + 1)))
    return got


def _answered(policy: RoutingPolicy, seen: EndpointSnapshot, sample: FirstOutput) -> EndpointSnapshot:
    learnt = policy.first_output(seen.learnt, sample) if isinstance(policy, Learner) else None
    return _loaded(seen, -1, -sample.prompt_tokens)._replace(answers=seen.answers + 1, fruitless=0, learnt=learnt)


def _loaded(seen: EndpointSnapshot, count: int, tokens: int) -> EndpointSnapshot:
    return seen._replace(
        in_flight=seen.in_flight + count,
        pending=seen.pending + count,
        pending_tokens=seen.pending_tokens + tokens,
        held_tokens=seen.held_tokens + tokens,
    )
