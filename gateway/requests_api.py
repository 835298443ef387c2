"""``/weir/requests``: what the flight recorder tells of single requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from .attribution.explanation import explanation
from .config.units import parse_duration_s
from .errors import BadRequest
from .recorder.asking import DEFAULT_SINCE, not_recorded
from .recorder.recorder import Recorder
from .routes import failed, json_answer

MOST = 1000
DEFAULT_MOST = 10


class RequestsApi:
    """Handlers; ``app`` gives them their routes.

    Args:
        recorder: Who knows the records.
        settle: Tells it of those that were closed a moment ago.
        refused: Returns the answer to a caller who may not ask; None to one who may.
    """

    def __init__(
        self, recorder: Recorder, settle: Callable[[], None], refused: Callable[[Request], Response | None]
    ) -> None:
        self._recorder = recorder
        self._settle = settle
        self._refused = refused

    async def one(self, request: Request) -> Response:
        """``/weir/requests/{id}``: one object for a request id; a list, the oldest first, for a trace id."""
        if (refused := self._refused(request)) is not None:
            return refused
        name: str = request.path_params["id"]
        self._settle()
        found = await asyncio.to_thread(self._recorder.named, name)
        if not found:
            return failed(BadRequest(not_recorded(name), status=404, code="unknown_request"), request)
        if found[-1].request_id == name:
            return json_answer(explanation(found[-1]))
        return json_answer([explanation(record) for record in found])

    async def slowest(self, request: Request) -> Response:
        """``/weir/requests?slowest=10&since=15m&pool=NAME``: the slowest first."""
        if (refused := self._refused(request)) is not None:
            return refused
        query = request.query_params
        try:
            most = int(query.get("slowest", DEFAULT_MOST))
        except ValueError:
            most = 0
        if not 0 < most <= MOST:
            message = f"slowest takes a number, 1 to {MOST}"
            return failed(BadRequest(message, code="invalid_query", param="slowest"), request)
        try:
            since_s = parse_duration_s(query.get("since", DEFAULT_SINCE))
        except ValueError as error:
            message = f"since takes a duration such as 15m: it {error}"
            return failed(BadRequest(message, code="invalid_query", param="since"), request)
        self._settle()
        found = await asyncio.to_thread(self._recorder.slowest, most, time.time() - since_s, query.get("pool"))
        return json_answer([explanation(record) for record in found])
