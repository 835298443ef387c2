"""When an endpoint is taken out and when it comes back: pure steps on a frozen state."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class HealthRules:
    """So many failures in a row eject, so many probe hits readmit; an ejection lasts ``eject_s`` and doubles."""

    failures: int
    successes: int
    eject_s: float
    eject_max_s: float


@dataclass(frozen=True, slots=True)
class HealthState:
    """What is known of one endpoint.

    Attributes:
        failures: Failures of requests in a row.
        misses: Failed probes in a row.
        hits: Good probes in a row since it was ejected.
        ejections: Ejections since it last served requests well.
        ejected_until_s: Monotonic time until which nothing readmits it; None while it takes traffic.
        reason: Why it was ejected, for people.
    """

    failures: int = 0
    misses: int = 0
    hits: int = 0
    ejections: int = 0
    ejected_until_s: float | None = None
    reason: str = ""


def request_succeeded(state: HealthState) -> HealthState:
    """A request was answered: nothing that came before counts any more."""
    if state.failures or state.misses or (state.ejections and state.ejected_until_s is None):
        return replace(state, failures=0, misses=0, ejections=0 if state.ejected_until_s is None else state.ejections)
    return state


def request_failed(state: HealthState, rules: HealthRules, now_s: float, reason: str) -> HealthState:
    """A request failed by the engine's fault."""
    state = replace(state, failures=state.failures + 1)
    return eject(state, rules, now_s, reason) if state.failures >= rules.failures else state


def probe_failed(state: HealthState, rules: HealthRules, now_s: float, reason: str) -> HealthState:
    state = replace(state, misses=state.misses + 1, hits=0)
    return eject(state, rules, now_s, reason) if state.misses >= rules.failures else state


def probe_succeeded(state: HealthState, rules: HealthRules, now_s: float) -> HealthState:
    """A probe was answered; readmits once the ejection is over."""
    until_s = state.ejected_until_s
    if until_s is None:
        return replace(state, misses=0) if state.misses else state
    state = replace(state, hits=state.hits + 1, misses=0)
    if state.hits < rules.successes or now_s < until_s:
        return state
    return replace(state, failures=0, hits=0, ejected_until_s=None, reason="")


def eject(state: HealthState, rules: HealthRules, now_s: float, reason: str) -> HealthState:
    """Takes the endpoint out, for twice as long as last time; one that is out already stays as it is."""
    if state.ejected_until_s is not None:
        return state
    lasts_s = min(rules.eject_s * 2**state.ejections, rules.eject_max_s)
    return replace(
        state,
        failures=0,
        hits=0,
        ejections=min(state.ejections + 1, 32),
        ejected_until_s=now_s + lasts_s,
        reason=reason,
    )
