"""The endpoints that serve one model name: which of them a request goes to, and which of them are well."""

from __future__ import annotations

import logging
import random
import time

from adapters.capabilities import Capabilities, unsupported
from adapters.types import EngineFailed, GatewayRequest
from policies import health
from policies.health import HealthState
from policies.retry import RetryBudget
from policies.routing import ROUTING
from policies.types import Choice, Learner, PoolView, RouteQuery

from .config import PoolConfig
from .endpoint import Endpoint
from .printable import printable
from .prompts import Prompts

log = logging.getLogger("weir.fleet")

REASON_CHARS = 100


class Pool:
    """The endpoints that serve one model name.

    Attributes:
        prompts: What is known of the prompts sent to them.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.name = config.name
        self._routing = ROUTING[config.routing.policy]()
        learner = self._routing if isinstance(self._routing, Learner) else None
        self.endpoints = {endpoint.id: Endpoint(endpoint, config, learner) for endpoint in config.endpoints}
        self._all = tuple(self.endpoints.values())
        by_prefix = getattr(self._routing, "uses_prefixes", False)
        self.prompts = Prompts(self.endpoints, config.routing.prefix_memory_bytes if by_prefix else None)
        self.retries = RetryBudget.of(config.retries.budget_ratio)
        self.in_flight = 0
        self._sequence = 0

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        return self._routing.choose(view, query)

    def view(self) -> PoolView:
        """Returns what the next choice is made from."""
        self._sequence += 1
        return PoolView(
            time.perf_counter(),
            self._sequence,
            tuple([e.own.seen or e.snapshot() for e in self._all]),
            random.getrandbits(64),
        )

    def refusal(self, request: GatewayRequest, needed: Capabilities) -> EngineFailed | None:
        """Returns why no endpoint can do what the request needs, healthy or not; None if one can."""
        nearest = min(self._all, key=lambda endpoint: len(needed - endpoint.capabilities))
        missing = needed - nearest.capabilities
        return unsupported(nearest.adapter.name, missing, request) if missing else None

    @property
    def ready(self) -> bool:
        """Whether at least one endpoint takes traffic."""
        return any(endpoint.healthy for endpoint in self.endpoints.values())

    # --- what requests and probes tell of an endpoint's health

    def succeeded(self, endpoint: Endpoint) -> None:
        endpoint.health = health.request_succeeded(endpoint.health)
        if endpoint.told:
            endpoint.told.clear()

    def failed(self, endpoint: Endpoint, reason: str) -> None:
        """A request failed by the engine's fault; the reason is ours, not the engine's words."""
        reason = printable(reason, REASON_CHARS)
        self._apply(endpoint, health.request_failed(endpoint.health, endpoint.rules, time.monotonic(), reason))

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
        else:
            reason = printable(failure, REASON_CHARS)
            self._apply(endpoint, health.probe_failed(endpoint.health, endpoint.rules, now_s, reason))

    def _apply(self, endpoint: Endpoint, after: HealthState) -> None:
        before = endpoint.health
        out_before, out_after = before.ejected_until_s is not None, after.ejected_until_s is not None
        if out_after and not out_before and self._is_last_healthy(endpoint):
            # The last one is never taken out: a bad endpoint may still answer, none surely does not.
            if after.reason not in endpoint.told:
                endpoint.told.add(after.reason)
                log.warning(
                    "endpoint %s would be ejected (%s), but is the last of pool %s",
                    endpoint.id,
                    after.reason,
                    self.name,
                )
            endpoint.health = before
            return
        endpoint.health = after
        if out_after != out_before:
            endpoint.told.clear()
            self.prompts.forget(endpoint.id)
            endpoint.transitions["ejected" if out_after else "healthy"] += 1
            if out_after:
                log.warning("endpoint %s ejected: %s", endpoint.id, after.reason)
            else:
                log.info("endpoint %s readmitted", endpoint.id)

    def _is_last_healthy(self, endpoint: Endpoint) -> bool:
        return not any(other.healthy for other in self.endpoints.values() if other is not endpoint)

    async def aclose(self) -> None:
        for endpoint in self.endpoints.values():
            await endpoint.upstream.aclose()
