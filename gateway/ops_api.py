"""Everything that is not a request to an engine: health, metrics, the model list, the state of the endpoints."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from .endpoint import Endpoint
from .errors import BadRequest, GatewayError, InternalError
from .fleet import Fleet
from .instruments import exposition
from .metrics import Metrics
from .orders import Orders, Word
from .pool import Pool
from .probing.scrape import scrape
from .routes import failed, json_answer

# What proxies add. To us every client of a proxy on this machine looks like one of this machine.
_FORWARDED = frozenset((b"forwarded", b"via", b"x-real-ip"))
_FORWARDED_PREFIX = b"x-forwarded-"
_NAME_SHOWN_CHARS = 200
_KNOWN_SHOWN_CHARS = 2000


class _Relay(Protocol):
    """What our own protocol class tells of a connection, under ``weir.relay``."""

    def peer_address(self) -> str | None: ...


class OpsApi:
    """Handlers; ``app`` gives them their routes."""

    def __init__(
        self,
        fleet: Fleet,
        metrics: Metrics,
        token: str | None,
        unknown_model: Callable[[str], GatewayError],
        orders: Orders,
    ) -> None:
        self._fleet = fleet
        self._orders = orders
        self._metrics = metrics
        self._token = token
        self._unknown_model = unknown_model
        self._created_unix_s = int(time.time())

    async def alive(self, request: Request) -> Response:
        """``/healthz``: the process lives."""
        return json_answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """``/health``, ``/readyz``: every required pool has an endpoint that takes traffic."""
        missing = [pool.name for pool in self._fleet.pools.values() if pool.config.required and not pool.ready]
        return (
            json_answer({"status": "unavailable", "pools": missing}, 503) if missing else json_answer({"status": "ok"})
        )

    async def metrics(self, request: Request) -> Response:
        """``/metrics``: text, or OpenMetrics for who asks for it."""
        format = exposition.wanted(",".join(request.headers.getlist("accept")))
        gzip = exposition.takes_gzip(",".join(request.headers.getlist("accept-encoding")))
        headers = {"content-type": format.content_type, "vary": "accept, accept-encoding"}
        if gzip:
            headers["content-encoding"] = "gzip"
        return Response(await scrape(self._metrics, format, gzip=gzip), headers=headers)

    async def models(self, request: Request) -> Response:
        named = [(name, self._fleet.pool_of(name)) for name in self._fleet.models]
        return json_answer(
            {"object": "list", "data": [self._model(name, pool) for name, pool in named if pool is not None]}
        )

    async def model(self, request: Request) -> Response:
        """``/v1/models/{id}``: ids hold slashes and colons, raw or percent-encoded."""
        path: str = request.path_params["model"]
        for name in (path, unquote(path)):  # some clients encode twice
            if (pool := self._fleet.pool_of(name)) is not None:
                return json_answer(self._model(name, pool))
        return failed(self._unknown_model(path), request)

    async def endpoints(self, request: Request) -> Response:
        """``/weir/endpoints``: what Weir knows of each."""
        if (refused := self.refused(request)) is not None:
            return refused
        return json_answer([_endpoint(pool, e) for pool in self._fleet.pools.values() for e in pool.endpoints.values()])

    async def drain(self, request: Request) -> Response:
        """``POST /weir/endpoints/{id}/drain``: nothing new goes there."""
        return self._order(request, "drain")

    async def readmit(self, request: Request) -> Response:
        """``POST /weir/endpoints/{id}/readmit``: it takes traffic, drained or ejected."""
        return self._order(request, "readmit")

    def _order(self, request: Request, word: Word) -> Response:
        if (refused := self.refused(request) or self._of_a_page(request)) is not None:
            return refused
        name: str = request.path_params["id"]
        for id in (name, unquote(name)):
            if (found := self._fleet.endpoint(id)) is not None:
                try:
                    self._orders.give(id, word)
                except OSError as error:
                    message = f"the other workers cannot be told: {error.strerror}; nothing was changed"
                    return failed(InternalError(message), request)
                return json_answer(_endpoint(*found))
        known = ", ".join(id for pool in self._fleet.pools.values() for id in pool.endpoints)
        message = f"there is no endpoint {name[:_NAME_SHOWN_CHARS]}; there are {known[:_KNOWN_SHOWN_CHARS]}"
        return failed(BadRequest(message, status=404, code="unknown_endpoint"), request)

    def _of_a_page(self, request: Request) -> Response | None:
        """Without a token any page that a browser of this machine shows could give orders; browsers name the page."""
        if self._token is not None or "origin" not in request.headers:
            return None
        message = "web pages may not change anything here; set admin.token, and send it"
        return failed(BadRequest(message, status=403, code="forbidden"), request)

    def _model(self, name: str, pool: Pool) -> dict[str, Any]:
        endpoints = pool.endpoints.values()
        weir = {
            "capabilities": sorted(set[str]().union(*(endpoint.capabilities for endpoint in endpoints))),
            "engines": sorted({endpoint.adapter.name for endpoint in endpoints}),
        }
        return {"id": name, "object": "model", "created": self._created_unix_s, "owned_by": "weir", "weir": weir}

    def refused(self, request: Request) -> Response | None:
        """``/weir/*`` takes the admin token; without one, calls from this machine only."""
        if self._token is None:
            if _is_of_this_machine(request.scope):
                return None
            message = "/weir/* answers this machine only, and no proxy; set admin.token to reach it from elsewhere"
            return failed(BadRequest(message, status=403, code="forbidden"), request)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(token.strip(), self._token):
            return None
        message = "/weir/* takes the admin token: Authorization: Bearer ..."
        return failed(BadRequest(message, status=401, code="unauthorized"), request)


def _equal(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())


def _is_of_this_machine(scope: Scope) -> bool:
    """Whether the caller itself is on this machine: a loopback address, and nobody in between."""
    if any(name in _FORWARDED or name.startswith(_FORWARDED_PREFIX) for name, _ in scope["headers"]):
        return False
    relay: _Relay | None = scope.get("extensions", {}).get("weir.relay")
    client: tuple[str, int] | None = scope.get("client")
    host = relay.peer_address() if relay is not None else client[0] if client else None
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:  # not known, or no address at all
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _endpoint(pool: Pool, endpoint: Endpoint) -> dict[str, Any]:
    state, sample, own = endpoint.health, endpoint.load, endpoint.own
    return {
        "id": endpoint.id,
        "pool": pool.name,
        "url": endpoint.config.url,
        "engine": endpoint.adapter.name,
        "engine_version": endpoint.engine_version,
        "health": state.name,
        "reason": state.reason,
        "in_flight": own.in_flight,
        "limit": None,
        "connections": endpoint.upstream.open_connections,
        "running": sample.load.running,
        "waiting": sample.load.waiting,
        "kv_usage_ratio": sample.load.kv_usage_ratio,
        "sample_age_s": sample.age_s,
        "slots": endpoint.facts.facts.slots,
        "model_loaded": endpoint.model_loaded,
        "facts_age_s": endpoint.facts.age_s,
        "load_penalty_s": endpoint.load_penalty_s,
        "missing_signals": sorted(endpoint.missing.now),
        "ttft_s": own.ttft_s,
        "itl_s": own.itl_s,
    }
