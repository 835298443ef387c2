"""Config -> ASGI application: the way of each path, and what runs as long as it does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import BinaryIO

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .access_log import AccessLog
from .config import Config
from .cors import Cors
from .fleet import Fleet
from .flight_log import FlightLog
from .instruments.gc_pauses import GENERATIONS, GcPauses
from .instruments.loop_lag import LoopLag
from .instruments.worker_numbers import Seat, WorkerNumbers
from .metrics import Metrics
from .openai_api import OPERATIONS, OpenAiApi
from .ops_api import OpsApi
from .orders import Orders
from .paces import Paces
from .paths import canonical
from .probing.probes import Probes
from .probing.wedge_watch import WedgeWatch
from .proxy import Proxy
from .recorder.location import recorder_path
from .recorder.recorder import Recorder
from .requests_api import RequestsApi
from .routes import Routes
from .tracing import Tracing
from .workers.publisher import Publisher

_ADMIN_PATHS = ("/metrics", "/weir")


class App:
    """The application. Requests to engines go straight to ``OpenAiApi``, the rest through Starlette's routes.

    Args:
        config: The configuration.
        access_out: Takes the access lines; standard output if not given.
        seat: Its place, if it is one of several workers.

    Attributes:
        fleet: The endpoints.
    """

    def __init__(self, config: Config, access_out: BinaryIO | None = None, seat: Seat | None = None) -> None:
        self.config = config
        self.fleet = Fleet(config)
        self.access_log = AccessLog(access_out or sys.stdout.buffer, self.fleet)
        self.tracing = Tracing(config, self.fleet)
        self.recorder = Recorder(recorder_path(config), config.recorder.max_rows, config.recorder.max_bytes)
        self._is_one_of_several = seat is not None
        workers = WorkerNumbers(seat) if seat is not None else None
        self.metrics = Metrics(self.fleet, lambda: self.access_log.dropped, config.metrics, config.hash, workers)
        self.metrics.flights_dropped = lambda: self.recorder.dropped
        self.metrics.trace_records = self.tracing.counts
        readers = (self.tracing, Paces(), self.metrics, self.access_log, self.recorder)  # each after those it builds on
        self._flights = FlightLog(tuple(reader.observe for reader in readers))
        self.metrics.settle = self._flights.settle
        proxy = Proxy(self.metrics, config.stream.keepalive_s, config.telemetry.stall_s)
        self.openai = OpenAiApi(config, self.fleet, self._flights, proxy, self.tracing)
        token = config.admin.token.get_secret_value() if config.admin.token else None
        self._orders = Orders(self.fleet, seat.folder if seat is not None else None)
        ops = OpsApi(self.fleet, self.metrics, token, self.openai.unknown_model, self._orders)
        requests = RequestsApi(self.recorder, self._flights.settle, ops.refused)
        self._cors = Cors(config.cors.allow_origins)
        self._serves_admin = config.admin.listen is None
        # No page may read these: without a token they answer this machine, and so do the pages that it shows.
        self._admin = Routes(
            [
                Route("/metrics", ops.metrics),
                Route("/weir/endpoints", ops.endpoints),
                Route("/weir/endpoints/{id:path}/drain", ops.drain, methods=["POST"]),
                Route("/weir/endpoints/{id:path}/readmit", ops.readmit, methods=["POST"]),
                Route("/weir/requests", requests.slowest),
                Route("/weir/requests/{id:path}", requests.one),
            ],
            "operators find /metrics, /weir/endpoints and /weir/requests here",
            Cors(()),
        )
        self._routes = Routes(
            [
                Route("/health", ops.ready),
                Route("/readyz", ops.ready),
                Route("/healthz", ops.alive),
                Route("/v1/models", ops.models),
                Route("/v1/models/{model:path}", ops.model),
            ],
            "the API is below /v1, for example /v1/chat/completions",
            self._cors,
            self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        path = scope["path"]
        if path not in OPERATIONS:
            path = canonical(path)
        elif scope["method"] == "POST":
            await self.openai.serve(scope, receive, send, path)
            return
        if self._serves_admin and (path in _ADMIN_PATHS or path.startswith("/weir/")):
            pages = self._admin
        elif not _is_for_engines(path) or (scope["method"] == "OPTIONS" and self._cors.enabled):
            pages = self._routes
        else:
            await self.openai.serve(scope, receive, send, path)
            return
        await _serve_page(pages, path, scope, receive, send)

    async def serve_admin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application of ``admin.listen``: the operator's paths, ``/metrics`` and ``/weir/*``, and no others."""
        await _serve_page(self._admin, scope["path"], scope, receive, send)

    def flush(self) -> None:
        """Tells all telemetry of the requests that have ended, and writes their access lines."""
        self._flights.settle()
        self.access_log.flush()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        metrics = self.metrics
        probes = Probes(self.fleet)
        watches: list[LoopLag | GcPauses | Publisher | Orders | WedgeWatch] = [
            WedgeWatch(self.fleet),
            LoopLag(metrics.families.loop_lag.at()),
            GcPauses(tuple(metrics.families.gc_pauses.at(generation) for generation in GENERATIONS)),
        ]
        if self._is_one_of_several:
            watches += [Publisher(metrics), self._orders]
        probes.start()
        self.recorder.start()
        for watch in watches:
            watch.start()
        self.tracing.start()
        try:
            yield
        finally:
            await probes.stop()
            await self.fleet.aclose()
            self.flush()
            await asyncio.gather(self.tracing.stop(), asyncio.to_thread(self.recorder.stop))
            for watch in watches:
                watch.stop()


async def _serve_page(pages: Routes, path: str, scope: Scope, receive: Receive, send: Send) -> None:
    asked = {**scope, "path": path}
    scope.pop("extensions", None)  # the link and the scope refer to each other
    await pages(asked, receive, send)


def _is_for_engines(path: str) -> bool:
    return path.startswith("/v1/") and path != "/v1/models" and not path.startswith("/v1/models/")
