"""Config -> ASGI application: the way of each path, and what runs as long as it does."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .access_log import AccessLog
from .config import Config
from .errors import BadRequest, InternalError
from .fleet import Fleet
from .flight import FlightLog
from .metrics import Metrics
from .openai_api import OPERATIONS, OpenAiApi
from .ops_api import OpsApi, failed
from .probes import Probes
from .proxy import Proxy

_SLASHES = re.compile(r"/{2,}")
_VERSIONS = re.compile(r"^(?:/v1)+(?=/|$)")
_WITHOUT_VERSION = ("/chat/completions", "/completions", "/embeddings", "/models")


class App:
    """The application. Requests to engines go straight to ``OpenAiApi``, the rest through Starlette's routes.

    Attributes:
        fleet: The endpoints.
        admin: What ``admin.listen`` serves: metrics and ``/weir/*``.
    """

    def __init__(self, config: Config, access_out: BinaryIO | None = None) -> None:
        self.config = config
        self.fleet = Fleet(config)
        self.metrics = Metrics(self.fleet)
        self.access_log = AccessLog(access_out or sys.stdout.buffer, self.fleet)
        flights = FlightLog((self.metrics.observe, self.access_log.observe))
        self.openai = OpenAiApi(config, self.fleet, flights, Proxy(self.metrics, config.stream.keepalive_s))
        token = config.admin.token.get_secret_value() if config.admin.token else None
        ops = OpsApi(self.fleet, self.metrics, token, self.openai.unknown_model)
        self.admin = Starlette(routes=self._admin_routes(ops))
        own_listener = config.admin.listen is not None
        self._starlette = Starlette(
            routes=[
                Route("/health", ops.ready),
                Route("/readyz", ops.ready),
                Route("/healthz", ops.alive),
                Route("/v1/models", ops.models),
                Route("/v1/models/{model:path}", ops.model),
                *([] if own_listener else self._admin_routes(ops)),
            ],
            exception_handlers={404: _not_found, 405: _not_allowed, 500: _internal},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        path = scope["path"]
        if path not in OPERATIONS:
            path = canonical(path)
            if not path.startswith("/v1/") or path == "/v1/models" or path.startswith("/v1/models/"):
                if scope["method"] == "OPTIONS" and self.config.cors.allow_origins:
                    await _preflight(self.config)(scope, receive, send)
                    return
                await self._starlette({**scope, "path": path, "raw_path": path.encode()}, receive, send)
                return
        if scope["method"] == "OPTIONS" and self.config.cors.allow_origins:
            await _preflight(self.config)(scope, receive, send)
            return
        await self.openai.serve(scope, receive, send, path)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        probes = Probes(self.fleet)
        probes.start()
        try:
            yield
        finally:
            await probes.stop()
            await self.fleet.aclose()
            self.access_log.flush()

    def _admin_routes(self, ops: OpsApi) -> list[Route]:
        return [Route("/metrics", ops.metrics), Route("/weir/endpoints", ops.endpoints)]


def canonical(path: str) -> str:
    """Forgives what base URLs are spelled like: doubled and trailing slashes, a doubled or missing ``/v1``."""
    path = _SLASHES.sub("/", path)
    if len(path) > 1:
        path = path.rstrip("/") or "/"
    path = _VERSIONS.sub("/v1", path)
    if path in _WITHOUT_VERSION or path.startswith("/models/"):
        path = "/v1" + path
    return path


def _preflight(config: Config) -> Response:
    origins = config.cors.allow_origins
    return Response(
        status_code=204,
        headers={
            "access-control-allow-origin": "*" if "*" in origins else origins[0],
            "access-control-allow-methods": "GET, POST, OPTIONS",
            "access-control-allow-headers": "authorization, content-type, x-request-id",
            "access-control-max-age": "600",
        },
    )


async def _not_found(request: Any, error: Exception) -> Response:
    message = f"{request.url.path[:200]} does not exist; the API is below /v1, for example /v1/chat/completions"
    return failed(BadRequest(message, status=404, code="unknown_path"))


async def _not_allowed(request: Any, error: Exception) -> Response:
    message = f"{request.url.path[:200]} does not take {request.method}"
    return failed(BadRequest(message, status=405, code="method_not_allowed", allow="GET"))


async def _internal(request: Any, error: Exception) -> Response:
    return failed(InternalError("internal error"))
