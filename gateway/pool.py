"""The endpoints that serve one model name: which of them a request goes to, and which of them are well."""

from __future__ import annotations

import logging
import time
from collections import Counter
from random import getrandbits
from time import perf_counter

from adapters.capabilities import Capabilities, unsupported
from adapters.loading import says_loading
from adapters.types import EngineFailed, GatewayRequest
from policies import health
from policies.health import HealthState
from policies.hedging import HedgeBudget, HedgeRules
from policies.named_tuples import named
from policies.retry import RetryBudget
from policies.retry_after import soonest
from policies.routing import ROUTING
from policies.sampling import PerSecond
from policies.types import Choice, Health, Learner, PoolView, RouteQuery
from policies.usual_waits import UsualWaits

from .config import PoolConfig
from .endpoint import Endpoint
from .printable import printable
from .prompts import Prompts
from .route_signals import SignalReader
from .routing_policy import routing_policy

log = logging.getLogger("weir.fleet")

REASON_CHARS = 200
MOST_NOTES = 100
"""Choices that are noted in a second: each is as large as its pool, and a sample of many tells as much as all."""
WEDGED = "wedged: requests wait, and nothing comes out"
_TAKES_TRAFFIC: frozenset[Health] = frozenset(("healthy", "half_open"))
_MAY_RESTART: frozenset[Health] = frozenset(("ejected", "loading", "draining"))  # what it had in its cache is lost then


class Pool:
    """The endpoints that serve one model name.

    Attributes:
        prompts: What is known of the prompts sent to them.
        retries: How many further attempts it may make.
        hedges: How many second attempts beside a first one; None if none.
        usual: What its answers took; None if nobody asks.
        notes: Bounds how many choices are noted with all that they were made from, for ``weir replay``.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.name = config.name
        self._routing = routing_policy(config)
        self.signals = SignalReader(config.routing)
        learner = self._routing if isinstance(self._routing, Learner) else None
        self.endpoints = {endpoint.id: Endpoint(endpoint, config, learner) for endpoint in config.endpoints}
        self._all = tuple(self.endpoints.values())
        by_prefix = getattr(ROUTING[config.routing.policy], "uses_prefixes", False)
        self.prompts = Prompts(self.endpoints, config.routing.prefix_memory_bytes if by_prefix else None)
        self.retries = RetryBudget(config.retries.budget_ratio)
        hedge = config.hedge
        self.hedges = (
            HedgeBudget(HedgeRules(hedge.share, hedge.quantile, hedge.at_least_s))
            if hedge.share and len(self._all) > 1
            else None
        )
        # Where nobody else could be tried instead, only the configured limits count
        self.learns_limits = config.timeouts.learn and len(self._all) > 1
        self.usual = UsualWaits() if self.learns_limits or self.hedges is not None else None
        self.notes = PerSecond(MOST_NOTES)
        self.in_flight = 0
        self._sequence = 0

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        return self._routing.choose(view, query)

    def view(self) -> PoolView:
        """Returns what the next choice is made from."""
        self._sequence += 1
        endpoints = tuple([e.own.seen or e.snapshot() for e in self._all])
        return named(PoolView, (perf_counter(), self._sequence, endpoints, getrandbits(64)))

    def refusal(self, request: GatewayRequest, needed: Capabilities) -> EngineFailed | None:
        """Returns why no endpoint can do what the request needs, healthy or not; None if one can."""
        nearest = min(self._all, key=lambda endpoint: len(needed - endpoint.capabilities))
        missing = needed - nearest.capabilities
        return unsupported(nearest.adapter.name, missing, request) if missing else None

    def shows_own_credential(self, endpoint: Endpoint) -> bool:
        """Whether its engine is shown the operator's credential, or none; else it is the client's."""
        return endpoint.has_credential or not self.config.forward_authorization

    @property
    def ready(self) -> bool:
        """Whether at least one endpoint takes traffic."""
        return any(endpoint.health.name in _TAKES_TRAFFIC for endpoint in self._all)

    def states(self) -> str:
        """Returns how many endpoints are in which state, in words."""
        counts = Counter(endpoint.health.name for endpoint in self._all)
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))

    def busy(self, endpoint: Endpoint, asked_s: float | None, told_s: float | None) -> str | None:
        """An engine said that it is busy, and how long to wait, if it did. It is not asked before, if others can be.

        Args:
            endpoint: Whose engine.
            asked_s: How long it asked to wait; None if it did not say.
            told_s: The shortest wait that the same request was told of before.

        Returns:
            ``Retry-After`` for the client: the shortest of the waits; of all endpoints, if all are busy.
        """
        now_s = perf_counter()
        if asked_s is not None:
            endpoint.busy_until_s = now_s + asked_s
        left_s = [(e.busy_until_s or now_s) - now_s for e in self._all if e.healthy]
        return soonest((asked_s, told_s, *(left_s if left_s and min(left_s) > 0 else ())))

    # --- what requests and probes tell of an endpoint's health

    def succeeded(self, endpoint: Endpoint) -> None:
        if not endpoint.untroubled:
            self._apply(endpoint, health.request_succeeded(endpoint.health, time.monotonic()))
        if endpoint.told:
            endpoint.told.clear()

    def failed(self, endpoint: Endpoint, reason: str) -> None:
        """A request failed by the engine's fault; the reason is ours, not the engine's words."""
        now_s, certain = time.monotonic(), reason == "connect"
        if certain:
            endpoint.recognised = False  # between two probes it may have been started anew
        reason = printable(reason, REASON_CHARS)
        after = health.request_failed(endpoint.health, endpoint.rules, now_s, reason, certain=certain)
        self._apply(endpoint, after)

    def refused(self, endpoint: Endpoint, failure: Exception) -> None:
        """The engine has no room for a request now; that is no fault, unless it is none because it loads its model."""
        if isinstance(failure, EngineFailed) and says_loading(failure):
            self.loading(endpoint)

    def loading(self, endpoint: Endpoint) -> None:
        """The engine said that it loads its model."""
        endpoint.recognised = False
        self._apply(endpoint, health.engine_loads(endpoint.health, time.monotonic()))

    def wedged(self, endpoint: Endpoint) -> None:
        """The engine hangs, whatever it answers to probes."""
        self._apply(endpoint, health.eject(endpoint.health, endpoint.rules, time.monotonic(), WEDGED))

    # --- what the operator says

    def drain(self, endpoint: Endpoint) -> None:
        """Nothing new goes there until it is readmitted, even if it is the last; what runs there ends as it would."""
        self._apply(endpoint, health.drain(endpoint.health))

    def readmit(self, endpoint: Endpoint) -> None:
        """It takes traffic at once, drained or ejected, or asked for patience by its engine."""
        endpoint.busy_until_s = None
        endpoint.recognised = False
        self._apply(endpoint, health.readmit())

    def refused_credential(self, endpoint: Endpoint) -> None:
        """The engine said 401 or 403: no request can succeed there until an operator mends it."""
        reason = "credential refused"
        if endpoint.healthy and reason not in endpoint.told:
            log.error(
                "endpoint %s refuses Weir's credential: set pools.%s.endpoints[].api_key to the key of that engine",
                endpoint.id,
                self.name,
            )
        self._apply(endpoint, health.eject(endpoint.health, endpoint.rules, time.monotonic(), reason))

    def probed(self, endpoint: Endpoint, failure: str | None) -> None:
        """A probe was answered, or failed for that reason."""
        now_s = time.monotonic()
        if failure is None:
            if endpoint.health.misses:
                endpoint.told.clear()
            self._apply(endpoint, health.probe_succeeded(endpoint.health, endpoint.rules, now_s))
            self._call_back_if_none()
        else:
            reason = printable(failure, REASON_CHARS)
            self._apply(endpoint, health.probe_failed(endpoint.health, endpoint.rules, now_s, reason))

    def _apply(self, endpoint: Endpoint, after: HealthState) -> None:
        before, was, now = endpoint.health, endpoint.health.name, after.name
        if was in _TAKES_TRAFFIC and now == "ejected" and not self._can_spare(endpoint):
            # The last ones are never taken out: a bad endpoint may still answer, none surely does not.
            if after.reason not in endpoint.told:
                endpoint.told.add(after.reason)
                log.warning(
                    "endpoint %s would be ejected (%s), but is %s of pool %s",
                    endpoint.id,
                    after.reason,
                    "the last" if self.config.health.min_healthy == 1 else "one of the last (health.min_healthy)",
                    self.name,
                )
            endpoint.health = before
            self._call_back()
            return
        endpoint.health = after
        if now == was:
            return
        endpoint.told.clear()
        endpoint.transitions[now] += 1
        if now in _MAY_RESTART:
            self.prompts.forget(endpoint.id)
        if was not in _TAKES_TRAFFIC and now in _TAKES_TRAFFIC:
            endpoint.own.revived()
            endpoint.busy_until_s = None
        _tell(endpoint, now)
        self._call_back_if_none()

    def _call_back_if_none(self) -> None:
        """The last one loads its model, or was drained."""
        if not self.ready:
            self._call_back()

    def _call_back(self) -> None:
        """Nobody waits for the end of an ejection any more whose probes go well again."""
        for other in self._all:
            self._apply(other, health.needed_again(other.health, other.rules, time.monotonic()))

    def _can_spare(self, endpoint: Endpoint) -> bool:
        others = sum(other.healthy for other in self._all if other is not endpoint)
        return health.may_eject(others, len(self._all), self.config.health.min_healthy)

    async def aclose(self) -> None:
        for endpoint in self.endpoints.values():
            await endpoint.upstream.aclose()
            await endpoint.questions.aclose()


def _tell(endpoint: Endpoint, now: Health) -> None:
    """Logs what has become of an endpoint."""
    if now == "ejected":
        log.warning("endpoint %s ejected: %s", endpoint.id, endpoint.health.reason)
    elif now == "half_open":
        log.info("endpoint %s may come back: one request tries it", endpoint.id)
    elif now == "loading":
        log.info("endpoint %s loads its model", endpoint.id)
    elif now == "draining":
        log.info("endpoint %s drains: no new requests go there", endpoint.id)
    else:
        log.info("endpoint %s readmitted", endpoint.id)
