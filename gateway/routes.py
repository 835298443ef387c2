"""Starlette's routes, and what all their answers have in common: the request's id, JSON errors, headers for pages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Lifespan, Message, Receive, Scope, Send

from .cors import Cors
from .errors import BadRequest, GatewayError, InternalError
from .request_head import read_head

log = logging.getLogger("weir.api")

_REQUEST_ID = "weir.request_id"
_PATH_SHOWN_CHARS = 200


class Routes:
    """An ASGI application of some routes.

    Args:
        routes: The routes.
        hint: Told with a 404: what there is instead.
        cors: Which pages may read the answers.
        lifespan: What runs as long as the application does.
    """

    def __init__(
        self, routes: Sequence[Route], hint: str, cors: Cors, lifespan: Lifespan[Starlette] | None = None
    ) -> None:
        self._hint = hint
        self._cors = cors
        self._starlette = Starlette(
            routes=routes,
            exception_handlers={404: self._not_found, 405: _not_allowed, 500: _internal},
            lifespan=lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        head = read_head(scope)
        scope[_REQUEST_ID] = head.request_id.decode("ascii")
        common = [(b"x-request-id", head.request_id), *self._cors.headers(head.origin)]

        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *common]
            await send(message)

        if scope["method"] == "OPTIONS" and self._cors.enabled:
            asked = Request(scope).headers.get("access-control-request-headers")
            await self._cors.preflight(asked)(scope, receive, send_more)
            return
        try:
            await self._starlette(scope, receive, send_more)
        except Exception:  # Starlette has answered it
            log.exception("request %s failed by a fault of Weir's", scope[_REQUEST_ID])

    async def _not_found(self, request: Request, error: Exception) -> Response:
        message = f"{request.scope['path'][:_PATH_SHOWN_CHARS]} does not exist; {self._hint}"
        return failed(BadRequest(message, status=404, code="unknown_path"), request)


def json_answer(value: Any, status: int = 200) -> Response:
    """Returns a value as JSON."""
    return Response(orjson.dumps(value), status, {"content-type": "application/json"})


def failed(error: GatewayError, request: Request) -> Response:
    """Returns an error as an answer of Starlette's."""
    return Response(error.body(request.scope[_REQUEST_ID]), error.status, error.headers())


async def _not_allowed(request: Request, error: Exception) -> Response:
    takes = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
    allow = "POST" if takes == "POST" else "GET"
    message = f"{request.scope['path'][:_PATH_SHOWN_CHARS]} does not take {request.method}"
    return failed(BadRequest(message, status=405, code="method_not_allowed", allow=allow), request)


async def _internal(request: Request, error: Exception) -> Response:
    return failed(InternalError("internal error; the log has the details under this request id"), request)
