"""When an endpoint is taken out and when it comes back: pure steps on a frozen state.

Only what a broken engine does counts: whoever calls these has told the client's mistakes and a busy engine apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from .types import Health

WINDOW_S = 10.0
"""How long the share of failed requests is counted from a failure on."""
_KEEPS_REASON: frozenset[Health] = frozenset(("draining", "ejected", "half_open"))
_MOST_EJECTIONS = 32  # doubling more often than this changes nothing


@dataclass(frozen=True, slots=True)
class HealthRules:
    """What ejects, what readmits, and for how long an ejection lasts.

    Attributes:
        failures: So many failures in a row eject; twice as many within the window do if they are half of all.
        successes: So many good probes in a row end an ejection that is over.
        eject_s: The first ejection. One within ``eject_max_s`` of the return from the last lasts twice as long.
        eject_max_s: The longest.
    """

    failures: int
    successes: int
    eject_s: float
    eject_max_s: float


@dataclass(frozen=True, slots=True)
class HealthState:
    """What is known of one endpoint. Times are monotonic.

    Attributes:
        failures: Failures of requests in a row.
        window_s: When the first failure of the window was; None while nothing is counted.
        window_failed: Failures since.
        window_served: Requests served since.
        misses: Failed probes in a row.
        hits: Good probes in a row since it was ejected.
        ejections: In a row, each soon after the return from the one before.
        ejected_until_s: Until when nothing readmits it; None while it is not ejected.
        by_probes: Failed probes ejected it, so good ones readmit it; else it takes a request served well.
        on_trial: The ejection is over, and one request decides.
        returned_s: When it came back from its last ejection; None if it never did.
        loading: Its engine says that it loads its model.
        draining: The operator wants nothing new there, whatever its health.
        reason: Why it is out, for people.
    """

    failures: int = 0
    window_s: float | None = None
    window_failed: int = 0
    window_served: int = 0
    misses: int = 0
    hits: int = 0
    ejections: int = 0
    ejected_until_s: float | None = None
    by_probes: bool = False
    on_trial: bool = False
    returned_s: float | None = None
    loading: bool = False
    draining: bool = False
    reason: str = ""

    @property
    def name(self) -> Health:
        """Returns it in one word."""
        if self.draining:
            return "draining"
        if self.loading:
            return "loading"
        if self.ejected_until_s is None:
            return "healthy"
        return "half_open" if self.on_trial else "ejected"


def may_eject(healthy_others: int, endpoints: int, floor: float) -> bool:
    """Returns whether a pool can spare one more endpoint.

    Args:
        healthy_others: Its endpoints that take traffic without that one.
        endpoints: All it has.
        floor: So many are always kept; less than 1 is a share of all, rounded up.
    """
    return healthy_others >= (floor if floor >= 1 else max(ceil(floor * endpoints), 1))


def is_untroubled(state: HealthState) -> bool:
    """Whether a request that is answered changes nothing."""
    return state.window_s is None and not (state.failures or state.misses or state.on_trial)


def request_succeeded(state: HealthState, now_s: float) -> HealthState:
    """A request was answered. The one that an endpoint on trial got readmits it."""
    if state.on_trial:
        return _returned(state, now_s)
    if is_untroubled(state):
        return state
    state = replace(state, failures=0, misses=0, window_served=state.window_served + 1)
    return _without_window(state) if _is_over(state, now_s) else state


def request_failed(
    state: HealthState, rules: HealthRules, now_s: float, reason: str, *, certain: bool = False
) -> HealthState:
    """A request failed by the engine's fault.

    Where ``certain``, there can be no other cause, as when nobody listens: then two do where three are the rule.
    """
    if state.on_trial:
        return eject(state, rules, now_s, reason)
    if state.window_s is None or _is_over(state, now_s):
        state = replace(_without_window(state), window_s=now_s)
    weight = (rules.failures + 1) // 2 if certain else 1
    state = replace(state, failures=state.failures + weight, window_failed=state.window_failed + 1)
    many = state.window_failed >= 2 * rules.failures and state.window_failed >= state.window_served
    return eject(state, rules, now_s, reason) if many or state.failures >= rules.failures else state


def probe_failed(state: HealthState, rules: HealthRules, now_s: float, reason: str) -> HealthState:
    """A probe was not answered, or not well. It ends a trial: no request is to find out what is known."""
    state = replace(state, misses=state.misses + 1, hits=0, on_trial=False)
    return eject(state, rules, now_s, reason, by_probes=True) if state.misses >= rules.failures else state


def probe_succeeded(state: HealthState, rules: HealthRules, now_s: float) -> HealthState:
    """A probe was answered. Once the ejection is over, it readmits what probes ejected, and lets the rest be tried."""
    if state.misses or state.loading:
        state = replace(state, misses=0, loading=False, reason=state.reason if state.name in _KEEPS_REASON else "")
    until_s = state.ejected_until_s
    if until_s is None or state.on_trial:
        return state
    state = replace(state, hits=state.hits + 1)
    return state if now_s < until_s else _back(state, rules, now_s)


def needed_again(state: HealthState, rules: HealthRules, now_s: float) -> HealthState:
    """The last that takes traffic fails, or none does: an ejection during which probes go well is over at once."""
    if state.name != "ejected" or not state.hits:
        return state
    return _back(replace(state, ejected_until_s=now_s), rules, now_s)


def engine_loads(state: HealthState, now_s: float) -> HealthState:
    """The engine says that it loads its model: no failure, but nothing can be served. A good probe ends it.

    An engine that loads has just been started: what ejected it before is over.
    """
    until_s = None if state.ejected_until_s is None else min(state.ejected_until_s, now_s)
    return replace(
        state,
        failures=0,
        misses=0,
        hits=0,
        on_trial=False,
        loading=True,
        ejected_until_s=until_s,
        reason=state.reason if state.draining else "loads its model",
    )


def eject(state: HealthState, rules: HealthRules, now_s: float, reason: str, *, by_probes: bool = False) -> HealthState:
    """Takes the endpoint out, or out again if it was on trial; one that is out already stays as it is."""
    if state.ejected_until_s is not None and not state.on_trial:
        return replace(state, loading=False, reason=reason) if state.loading else state
    returned_s = now_s if state.on_trial else state.returned_s
    relapse = returned_s is not None and now_s - returned_s < rules.eject_max_s
    ejections = state.ejections if relapse else 0
    return replace(
        _without_window(state),
        failures=0,
        hits=0,
        ejections=min(ejections + 1, _MOST_EJECTIONS),
        ejected_until_s=now_s + min(rules.eject_s * 2**ejections, rules.eject_max_s),
        by_probes=by_probes,
        on_trial=False,
        loading=False,
        reason=state.reason if state.draining else reason,
    )


def drain(state: HealthState) -> HealthState:
    """The operator wants nothing new to go there; what else is known of it stays."""
    return replace(state, draining=True, reason="drained by an operator")


def readmit() -> HealthState:
    """Returns the state of an endpoint that the operator vouches for: nothing that came before counts."""
    return HealthState()


def _back(state: HealthState, rules: HealthRules, now_s: float) -> HealthState:
    """Its time is over. Enough good probes readmit what probes ejected, and let the rest be tried."""
    if state.hits < rules.successes:
        return state
    return _returned(state, now_s) if state.by_probes else replace(state, on_trial=True)


def _returned(state: HealthState, now_s: float) -> HealthState:
    """The endpoint takes traffic again. Its ejections are kept: the next one soon after lasts longer."""
    reason = state.reason if state.draining else ""
    return HealthState(ejections=state.ejections, returned_s=now_s, draining=state.draining, reason=reason)


def _is_over(state: HealthState, now_s: float) -> bool:
    return state.window_s is None or now_s - state.window_s > WINDOW_S


def _without_window(state: HealthState) -> HealthState:
    return replace(state, window_s=None, window_failed=0, window_served=0)
