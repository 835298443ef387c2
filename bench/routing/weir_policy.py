"""The product's own policy before the referee, and the same with one part less or more.

It sees the product's snapshots and samples. Cached tokens are those of the referee's prefix map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp

from policies.engine_speed import EngineSpeed
from policies.routing.latency import Latency
from policies.types import Answered, EndpointSnapshot, FirstOutput, PoolView, RouteQuery

from .engine import Engine, Request
from .gateway import Endpoint, Query, View

Change = Callable[[EndpointSnapshot, Endpoint, float], EndpointSnapshot]


class Product:
    """What stands between the policy and the referee: what ``gateway.own_load`` is in the product."""

    def __init__(
        self, policy: Latency, change: Change | None = None, *, learns: bool = True, sees_prefixes: bool = True
    ) -> None:
        self.policy = policy
        self._change = change
        self._learns = learns
        self._sees_prefixes = sees_prefixes
        self._learnt: dict[int, EngineSpeed] = {}
        self._answers: dict[int, int] = {}

    def choose(self, view: View, query: Query) -> int | None:
        cached: Mapping[str, int] = {}
        if self._sees_prefixes:
            cached = {str(i): tokens for i, tokens in enumerate(query.cached) if tokens}
        snapshots = tuple([self._snapshot(endpoint, view.now_s) for endpoint in view.endpoints])
        choice = self.policy.choose(
            PoolView(view.now_s, view.sequence, snapshots, view.seed),
            RouteQuery(prompt_tokens=query.prompt_tokens, cached_tokens=cached),
        )
        return None if choice is None else int(choice.endpoint_id)

    def _snapshot(self, endpoint: Endpoint, now_s: float) -> EndpointSnapshot:
        oldest = next(iter(endpoint.pending), None)
        snapshot = EndpointSnapshot(
            str(endpoint.index),
            "healthy",
            endpoint.in_flight,
            pending=len(endpoint.pending),
            pending_tokens=endpoint.pending_uncached if self._sees_prefixes else endpoint.pending_tokens,
            oldest_s=None if oldest is None else oldest.sent_s,
            oldest_tokens=0 if oldest is None else self._uncached(oldest),
            held_tokens=endpoint.in_flight_tokens,
            answers=self._answers.get(endpoint.index, 0),
            ttft_s=endpoint.ttft_s,
            itl_s=endpoint.tpot_s,
            running=endpoint.running,
            waiting=endpoint.waiting,
            kv_usage_ratio=endpoint.kv_usage_ratio,
            sampled_s=None if endpoint.running is None else endpoint.scraped_s,
            learnt=self._learnt.get(endpoint.index),
        )
        return snapshot if self._change is None else self._change(snapshot, endpoint, now_s)

    def _uncached(self, request: Request) -> int:
        return request.expected_uncached if self._sees_prefixes else request.estimate_tokens

    def dispatched(self, endpoint: Endpoint, request: Request, now_s: float) -> None:
        ahead_tokens = endpoint.pending_uncached if self._sees_prefixes else endpoint.pending_tokens
        request.notes = len(endpoint.pending), ahead_tokens, endpoint.in_flight_tokens

    def first_token(self, endpoint: Endpoint, request: Request, now_s: float) -> None:
        index = endpoint.index
        self._answers[index] = self._answers.get(index, 0) + 1
        if self._learns:
            tokens = request.estimate_tokens, self._uncached(request)
            sample = FirstOutput(request.sent_s, now_s, *tokens, *request.notes, endpoint.in_flight)
            self._learnt[index] = self.policy.first_output(self._learnt.get(index), sample)

    def finished(self, endpoint: Endpoint, request: Request, now_s: float) -> None:
        if self._learns:
            index, first_s, tokens = endpoint.index, request.first_s, request.output_tokens
            token_s = None if first_s is None or tokens < 2 else (now_s - first_s) / (tokens - 1)
            counts = request.prompt_tokens, request.cached_tokens, tokens
            sample = Answered(request.sent_s, now_s, first_s, *counts, token_s)
            self._learnt[index] = self.policy.answered(self._learnt.get(index), sample)


def factory(engines: Sequence[Engine]) -> Product:
    return Product(Latency())


# --- one part less


def no_prefix(engines: Sequence[Engine]) -> Product:
    return Product(Latency(), sees_prefixes=False)


def no_learning(engines: Sequence[Engine]) -> Product:
    return Product(Latency(), learns=False)


def no_pace(engines: Sequence[Engine]) -> Product:
    def change(snapshot: EndpointSnapshot, *_: object) -> EndpointSnapshot:
        learnt = snapshot.learnt
        return snapshot if learnt is None else snapshot._replace(learnt=learnt._replace(pace_s=1e-18))

    return Product(Latency(), change)


def no_ttft_slo(engines: Sequence[Engine]) -> Product:
    return Product(Latency(ttft_slo_s=1e9))


def no_progress(engines: Sequence[Engine]) -> Product:
    return Product(Latency(), lambda snapshot, _, now_s: snapshot._replace(oldest_s=now_s))


def no_slow_start(engines: Sequence[Engine]) -> Product:
    return Product(Latency(), lambda snapshot, *_: snapshot._replace(answers=3))


# --- one part more


def with_gauges(engines: Sequence[Engine]) -> Product:
    """What the engine had more than ours when it was scraped is more tokens ahead, less and less as it ages."""

    def change(snapshot: EndpointSnapshot, endpoint: Endpoint, now_s: float) -> EndpointSnapshot:
        if endpoint.running is None or not endpoint.own_at_scrape:
            return snapshot
        others = max(0, endpoint.running + (endpoint.waiting or 0) - endpoint.own_at_scrape)
        trust = exp((endpoint.scraped_s - now_s) / 4.0)
        more = 1.0 + trust * min(7.0, others / endpoint.own_at_scrape)
        return snapshot._replace(pending_tokens=round(snapshot.pending_tokens * more))

    return Product(Latency(), change)


def with_slots(engines: Sequence[Engine]) -> Product:
    """The slots of engines with few, as llama.cpp tells them; Ollama, which is in the fleets, does not."""

    def change(snapshot: EndpointSnapshot, endpoint: Endpoint, _: float) -> EndpointSnapshot:
        slots = engines[endpoint.index].profile.max_seqs
        return snapshot._replace(slots=slots) if slots <= 16 else snapshot

    return Product(Latency(), change)


def with_lateness(engines: Sequence[Engine]) -> Product:
    """What the oldest is late by, another may be late by: more tokens ahead."""

    def change(snapshot: EndpointSnapshot, _: Endpoint, now_s: float) -> EndpointSnapshot:
        learnt = snapshot.learnt
        if snapshot.oldest_s is None or learnt is None or not learnt.firsts:
            return snapshot
        spent_s = now_s - max(learnt.last_first_s, snapshot.oldest_s + learnt.base_s)
        late = max(0.0, spent_s / learnt.token_s - snapshot.oldest_tokens)
        return snapshot._replace(pending_tokens=snapshot.pending_tokens + round(late))

    return Product(Latency(), change)
