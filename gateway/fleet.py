"""The endpoints: the only mutable state there is about each of them. Hands out leases and frozen snapshots."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from adapters import ADAPTERS
from adapters.capabilities import Capabilities, capabilities, unsupported
from adapters.engine_load import UNKNOWN, EngineLoad
from adapters.types import Adapter, EngineFailed, GatewayRequest
from policies import health
from policies.health import HealthRules, HealthState
from policies.retry import RetryBudget
from policies.routing import ROUTING
from policies.types import Choice, EndpointSnapshot, PoolView, RouteQuery

from .config import Config, EndpointConfig, PoolConfig
from .printable import printable
from .upstream.contract import Upstream, WireRequest
from .upstream.native import NativeUpstream
from .upstream.via_httpx2 import Httpx2Upstream

log = logging.getLogger("weir.fleet")

REASON_CHARS = 100


class Lease:
    """Counts one more request in flight for as long as a ``with`` block runs, however it ends.

    Attributes:
        in_flight: Blocks that run now.
    """

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        self.in_flight = 0

    def __enter__(self) -> None:
        self.in_flight += 1

    def __exit__(self, *exc: object) -> None:
        self.in_flight -= 1


class LoadSample(NamedTuple):
    """What an engine said of its load.

    Attributes:
        load: Its figures.
        asked_s: Monotonic time of the question.
    """

    load: EngineLoad = UNKNOWN
    asked_s: float | None = None

    @property
    def age_s(self) -> float | None:
        """How old it is at most; None if there is none."""
        return None if self.asked_s is None else time.monotonic() - self.asked_s


NO_SAMPLE = LoadSample()


class Endpoint:
    """One engine process at one base URL.

    Attributes:
        adapter: Its dialect: the configured engine's, until another one has been recognised there.
        engine_version: As the engine told it, or "".
        capabilities: What that engine can do in that version.
        recognised: Whether it has been asked which engine it is since it last came to life.
        load: What this engine last said of its load.
        lease: Counts the requests of ours that are open there.
        health: What is known of its health.
        origin: Scheme, host and port of its URL.
        upstream: Its connections.
        transitions: How often it was ejected and readmitted.
        told: Reasons for an ejection that did not come about, already logged since the endpoint last did well.
    """

    def __init__(self, config: EndpointConfig, pool: PoolConfig) -> None:
        self.config = config
        self.id = config.id
        self.adapter: Adapter = ADAPTERS.get(config.engine, ADAPTERS["openai"])
        self.engine_version = ""
        self.capabilities = capabilities(self.adapter.name)
        self.recognised = False
        self.load = NO_SAMPLE
        self.lease = Lease()
        self.health = HealthState()
        self.transitions = {"healthy": 0, "ejected": 0}
        self.told: set[str] = set()
        self.rules = HealthRules(
            pool.health.failures, pool.health.successes, pool.health.eject_s, pool.health.eject_max_s
        )
        self.upstream = _upstream(config, self.adapter.idle_s)
        self.origin = f"{config.scheme}://{_netloc(config)}"
        self._base_path = config.base_path
        self._has_version = config.has_version
        self._headers = [(name.lower().encode("ascii"), value.encode()) for name, value in config.headers.items()]
        if config.api_key is not None:
            secret = config.api_key.get_secret_value()
            self._headers.append((b"authorization", b"Bearer " + secret.encode()))

    @property
    def healthy(self) -> bool:
        return self.health.ejected_until_s is None

    def speak(self, adapter: Adapter, version: str) -> None:
        """From now on requests are written for this engine; ``version`` may be "". Of a new one no load is known."""
        if (adapter, version) != (self.adapter, self.engine_version):
            self.load = NO_SAMPLE
        self.adapter = adapter
        self.engine_version = version
        self.capabilities = capabilities(adapter.name, version)

    def question(self, path: str) -> tuple[str, Sequence[tuple[bytes, bytes]]]:
        """Returns the URL and the headers of a GET that Weir makes for itself."""
        wire = self.wire("GET", path, b"", ())
        return self.origin + wire.target, wire.headers

    def wire(self, method: str, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> WireRequest:
        """Returns the request for this endpoint: its base path, its own headers, our credential."""
        if self._has_version and path.startswith("/v1/"):
            path = path[3:]
        return WireRequest(method, self._base_path + path, (*headers, *self._headers), body)


class Pool:
    """The endpoints that serve one model name."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.name = config.name
        self.endpoints = {endpoint.id: Endpoint(endpoint, config) for endpoint in config.endpoints}
        self._all = tuple(self.endpoints.values())
        self.retries = RetryBudget.of(config.retries.budget_ratio)
        self.in_flight = 0
        self._routing = ROUTING[config.routing.policy]()
        self._sequence = 0

    def choose(self, query: RouteQuery) -> Choice | None:
        self._sequence += 1
        return self._routing.choose(self.view(), query)

    def view(self) -> PoolView:
        return PoolView(
            time.monotonic(),
            self._sequence,
            tuple(
                [
                    EndpointSnapshot(
                        e.id,
                        "healthy" if e.health.ejected_until_s is None else "ejected",
                        e.lease.in_flight,
                        e.capabilities,
                    )
                    for e in self._all
                ]
            ),
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


class Fleet:
    """All pools, by every name that clients may ask for."""

    def __init__(self, config: Config) -> None:
        self.pools = {name: Pool(pool) for name, pool in config.pools.items()}
        self._by_model = {model: pool for pool in self.pools.values() for model in (pool.name, *pool.config.aliases)}

    @property
    def models(self) -> list[str]:
        """Every name that clients may ask for, in the order of the configuration."""
        return list(self._by_model)

    def in_flight(self) -> int:
        """Requests that are being served now."""
        return sum(pool.in_flight for pool in self.pools.values())

    def pool_of(self, model: str) -> Pool | None:
        return self._by_model.get(model)

    async def aclose(self) -> None:
        for pool in self.pools.values():
            await pool.aclose()


def _upstream(config: EndpointConfig, idle_s: float) -> Upstream:
    tls = ssl.create_default_context() if config.scheme == "https" else None
    if config.transport == "httpx2":
        http2 = find_spec("h2") is not None  # the extra http2; offered where TLS lets both sides choose
        return Httpx2Upstream(f"{config.scheme}://{_netloc(config)}", idle_s=idle_s, http2=http2, verify=tls)
    return NativeUpstream(config.host, config.port, tls=tls, idle_s=idle_s)


def _netloc(config: EndpointConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{host}:{config.port}"
