"""Two policies on the same decisions: where each would have sent the requests, and what was to be expected there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from policies.engine_speed import EngineSpeed, after_first_output, first_output_s
from policies.types import Choice, FirstOutput, Learner, RoutingPolicy

from .history import Decided, Event, Taught

EXAMPLES = 5
_MOST_KEPT = 1000  # of those that may turn out to be examples


class Differing(NamedTuple):
    """A request that would have gone elsewhere.

    Attributes:
        gain_s: By how much sooner its first output was to be expected there; negative for later.
    """

    request_id: str
    recorded: str
    recorded_reason: str
    other: str
    other_reason: str
    gain_s: float


class Comparison(NamedTuple):
    """What came of it.

    Expected times are by one measure for both policies, learnt from the records (``policies.engine_speed``). Each
    decision stands for itself: what another one would have changed for those after it is not known.

    Attributes:
        decisions: How many were made again.
        differing: How many would have been other ones.
        refused: Of those, how many requests the other policy would have sent nowhere.
        recorded_share: Decisions by endpoint, as they were made.
        other_share: The same of the other policy.
        recorded_s: Times to the first output that were to be expected where requests went, seconds, rising.
        other_s: The same where the other policy would have sent those.
        took_s: What they took in truth, rising: how far the expectation can be trusted.
        examples: Those that gain most, and lose most.
    """

    decisions: int
    differing: int
    refused: int
    recorded_share: Counter[str]
    other_share: Counter[str]
    recorded_s: list[float]
    other_s: list[float]
    took_s: list[float]
    examples: list[Differing]


class Comparing:
    """Makes the decisions of one pool again, by what the policy could have known at each time."""

    def __init__(self, policy: RoutingPolicy) -> None:
        self._policy = policy
        self._learner = policy if isinstance(policy, Learner) else None
        self._learnt: dict[str, Any] = {}
        self._speeds: dict[str, EngineSpeed] = {}
        self._shares = Counter[str](), Counter[str]()
        self._times_s = list[float](), list[float](), list[float]()
        self._examples = list[Differing]()
        self._differing = self._refused = 0

    def take(self, event: Event) -> None:
        """Takes the next event, in the order in which they happened."""
        if isinstance(event, Decided):
            self._decide(event)
        else:
            self._learn(event)

    def comparison(self) -> Comparison:
        """Returns what came of it so far."""
        recorded_s, other_s, took_s = [sorted(times_s) for times_s in self._times_s]
        return Comparison(
            self._shares[0].total(),
            self._differing,
            self._refused,
            *self._shares,
            recorded_s,
            other_s,
            took_s,
            _telling(self._examples),
        )

    def _learn(self, event: Taught) -> None:
        endpoint_id, sample, learner = event.endpoint_id, event.sample, self._learner
        if isinstance(sample, FirstOutput):
            self._speeds[endpoint_id] = after_first_output(self._speeds.get(endpoint_id), sample)
            if learner is not None:
                self._learnt[endpoint_id] = learner.first_output(self._learnt.get(endpoint_id), sample)
        elif learner is not None:
            self._learnt[endpoint_id] = learner.answered(self._learnt.get(endpoint_id), sample)

    def _decide(self, event: Decided) -> None:
        view, query = event.decision
        if self._learner is not None:
            known = [e._replace(learnt=self._learnt.get(e.endpoint_id)) for e in view.endpoints]
            view = view._replace(endpoints=tuple(known))
        choice = self._policy.choose(view, query)
        recorded_share, other_share = self._shares
        recorded_share[event.endpoint_id] += 1
        if choice is None:
            self._differing += 1
            self._refused += 1
            return
        other_share[choice.endpoint_id] += 1
        self._differing += choice.endpoint_id != event.endpoint_id
        here_s, there_s = [self._expected_s(event, at) for at in (event.endpoint_id, choice.endpoint_id)]
        if here_s is None or there_s is None:
            return
        recorded_s, other_s, took_s = self._times_s
        recorded_s.append(here_s)
        other_s.append(there_s)
        if event.took_s is not None:
            took_s.append(event.took_s)
        if choice.endpoint_id != event.endpoint_id:
            self._examples.append(_differing(event, choice, here_s - there_s))
            if len(self._examples) > _MOST_KEPT:
                self._examples = _telling(self._examples)

    def _expected_s(self, event: Decided, endpoint_id: str) -> float | None:
        """When the first output was to be expected there; None if nothing was known of the endpoint."""
        speed = self._speeds.get(endpoint_id)
        if speed is None:
            return None
        view, query = event.decision
        there = next(e for e in view.endpoints if e.endpoint_id == endpoint_id)
        return first_output_s(speed, there, query, view.now_s)


def compare(events: Iterable[Event], policy: RoutingPolicy) -> dict[str, Comparison]:
    """Makes each decision again; returns what came of it by pool, by name."""
    pools: dict[str, Comparing] = {}
    for event in events:
        comparing = pools.get(event.pool)
        if comparing is None:
            comparing = pools[event.pool] = Comparing(policy)
        comparing.take(event)
    return {pool: pools[pool].comparison() for pool in sorted(pools)}


def _differing(event: Decided, choice: Choice, gain_s: float) -> Differing:
    return Differing(event.request_id, event.endpoint_id, event.reason, choice.endpoint_id, choice.reason, gain_s)


def _telling(differing: list[Differing]) -> list[Differing]:
    """Those that say most, the greatest gain first."""
    ordered = sorted(differing, key=lambda one: one.gain_s, reverse=True)
    return ordered if len(ordered) <= 2 * EXAMPLES else ordered[:EXAMPLES] + ordered[-EXAMPLES:]
