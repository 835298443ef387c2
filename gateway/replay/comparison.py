"""Two policies on the same decisions: where each would have sent the requests, and what was to be expected there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from policies.engine_speed import EngineSpeed, after_first_output, first_output_s
from policies.types import Choice, EndpointSnapshot, FirstOutput, Learner, RoutingPolicy

from .history import Decided, Event

EXAMPLES = 5


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


def compare(events: Iterable[Event], policy: RoutingPolicy) -> Comparison:
    """Makes each decision again, by what the policy could have known at that time."""
    learner = policy if isinstance(policy, Learner) else None
    learnt: dict[str, Any] = {}
    speeds: dict[str, EngineSpeed] = {}
    shares = Counter[str](), Counter[str]()
    recorded_s, other_s, took_s = list[float](), list[float](), list[float]()
    differing = list[Differing]()
    differ = refused = 0
    for event in events:
        if not isinstance(event, Decided):
            if isinstance(event.sample, FirstOutput):
                speeds[event.endpoint_id] = after_first_output(speeds.get(event.endpoint_id), event.sample)
            if learner is not None:
                learn = learner.first_output if isinstance(event.sample, FirstOutput) else learner.answered
                learnt[event.endpoint_id] = learn(learnt.get(event.endpoint_id), event.sample)  # type: ignore[arg-type]
            continue
        view, query = event.decision
        known = [e._replace(learnt=learnt.get(e.endpoint_id)) for e in view.endpoints]
        choice = policy.choose(view._replace(endpoints=tuple(known)), query)
        shares[0][event.endpoint_id] += 1
        if choice is None:
            differ, refused = differ + 1, refused + 1
            continue
        shares[1][choice.endpoint_id] += 1
        differ += choice.endpoint_id != event.endpoint_id
        expected_s = [
            _expected_s(speeds, view.endpoints, endpoint_id, event) for endpoint_id in (event.endpoint_id, choice[0])
        ]
        here_s, there_s = expected_s
        if here_s is None or there_s is None:
            continue
        recorded_s.append(here_s)
        other_s.append(there_s)
        if event.took_s is not None:
            took_s.append(event.took_s)
        if choice.endpoint_id != event.endpoint_id:
            differing.append(_differing(event, choice, here_s - there_s))
    return Comparison(
        shares[0].total(),
        differ,
        refused,
        *shares,
        sorted(recorded_s),
        sorted(other_s),
        sorted(took_s),
        _telling(differing),
    )


def _expected_s(
    speeds: dict[str, EngineSpeed], endpoints: tuple[EndpointSnapshot, ...], endpoint_id: str, event: Decided
) -> float | None:
    """When the first output was to be expected there; None if nothing was known of the endpoint."""
    speed = speeds.get(endpoint_id)
    if speed is None:
        return None
    there = next(e for e in endpoints if e.endpoint_id == endpoint_id)
    return first_output_s(speed, there, event.decision.query, event.decision.view.now_s)


def _differing(event: Decided, choice: Choice, gain_s: float) -> Differing:
    return Differing(event.request_id, event.endpoint_id, event.reason, choice.endpoint_id, choice.reason, gain_s)


def _telling(differing: list[Differing]) -> list[Differing]:
    """Those that say most, the greatest gain first."""
    ordered = sorted(differing, key=lambda one: one.gain_s, reverse=True)
    return ordered if len(ordered) <= 2 * EXAMPLES else ordered[:EXAMPLES] + ordered[-EXAMPLES:]
