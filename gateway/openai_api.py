"""``/v1/*``: HTTP request -> ``GatewayRequest``; whatever goes wrong -> an OpenAI error body, or an error event."""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from adapters.bodies import BadBody, read_object
from adapters.types import GatewayRequest, Operation
from policies.types import Header

from .call import Call
from .client_link import AsgiLink, ClientLink, block
from .config import Config
from .cors import Cors
from .errors import BadRequest, GatewayError, InternalError, RequestTooSlow, ShuttingDown
from .fleet import Fleet
from .flight import FlightRecord
from .flight_log import FlightLog
from .frames import let_go
from .paths import engine_path
from .pool import Pool
from .proxy import Proxy
from .request_head import RequestHead, new_request_id, read_head
from .tracing import Tracing

log = logging.getLogger("weir.api")

OPERATIONS: dict[str, Operation] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
_PATH_SHOWN_CHARS = 200
_JSON: Header = (b"content-type", b"application/json")
_BOOL_OR_NULL = (bool, type(None))
_OBJECT_OR_NULL = (dict, type(None))
_BOUNDARY = re.compile(rb'boundary=(?:"([^"]{1,70})"|([^;\s]{1,70}))', re.IGNORECASE)
_MODEL_FIELD = re.compile(rb'[;\s]name="?model"?(?=[;\r\n]|$)', re.IGNORECASE)
_PART_HEAD_BYTES = 1536
_MAX_PARTS = 100
_MIB = 2**20


class OpenAiApi:
    """The ASGI endpoint of every path below ``/v1`` but the model list."""

    def __init__(self, config: Config, fleet: Fleet, flights: FlightLog, proxy: Proxy, tracing: Tracing) -> None:
        self._config = config
        self._fleet = fleet
        self._flights = flights
        self._proxy = proxy
        self._tracing = tracing
        self._cors = Cors(config.cors.allow_origins)
        self._max_body_bytes = config.limits_http.body_bytes
        self._read_s = config.limits_http.read_s

    async def serve(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Serves one request; ``path`` is the canonical one."""
        head = read_head(scope)
        link: ClientLink = scope.get("extensions", {}).pop("weir.relay", None) or AsgiLink(
            receive, send, self._config.stream.buffer_bytes
        )
        link.extra_headers = b"x-request-id: %b\r\n" % head.request_id
        if self._cors.enabled:
            link.extra_headers += block(self._cors.headers(head.origin))
        record = self._flights.open(head.request_id.decode("ascii"), scope["method"], path[:_PATH_SHOWN_CHARS])
        self._tracing.begin(record, head, scope)
        task = asyncio.current_task()
        assert task is not None
        call: Call | None = None
        try:
            link.watch(task.cancel)
            if link.blocked:
                await link.writable()  # the answer before this one is still to be taken
            record.operation = OPERATIONS.get(path, "other")
            if record.method != "POST":
                _check_method(record.method, path, record.operation)
            raw = link.take_body()
            if raw is None:
                raw = await self._receive_body(receive, head, link)
                link.watch(task.cancel)  # again: uvicorn may have stopped reading, and with it noticing
            size_bytes = len(raw)
            if size_bytes > self._max_body_bytes:
                raise self._too_large()
            record.body_read_s = perf_counter()
            record.bytes_in = size_bytes
            call = self._call(scope, head, link, record, path, raw)
            await self._proxy.serve(call)
        except GatewayError as error:
            record.failed(error)
            await self._tell(error, call, link, record)
            let_go(error)
        except asyncio.CancelledError:
            if not link.gone:  # the server is going down
                ending = ShuttingDown()
                record.failed(ending)
                await self._tell(ending, call, link, record)
                task.uncancel()  # the answer is over: the server has nothing more to end, and nothing to log
                return
            task.uncancel()
            record.outcome = "cancelled"
        except Exception:
            log.exception("request %s failed by a fault of Weir's", record.request_id)
            fault = InternalError("internal error; the log has the details under this request id")
            record.failed(fault)
            await self._tell(fault, call, link, record)
        finally:
            self._flights.close(record)

    def refused(self, error: GatewayError, method: str, path: str) -> str:
        """Takes note of a request whose head was none; returns its id."""
        record = self._flights.open(new_request_id().decode("ascii"), method, path[:_PATH_SHOWN_CHARS])
        record.operation = OPERATIONS.get(path, "other")
        record.status = error.status
        record.failed(error)
        self._flights.close(record)
        return record.request_id

    async def _tell(self, error: GatewayError, call: Call | None, link: ClientLink, record: FlightRecord) -> None:
        """Ends the answer with an error, in whatever way is still possible."""
        if link.gone or link.finished:
            return
        body = error.body(record.request_id)
        if not link.started:
            record.status = error.status
            headers = error.headers()
            if record.attempts:
                headers |= {"x-weir-endpoint": record.endpoint_id, "x-weir-attempts": str(len(record.attempts))}
            link.respond(error.status, block((k.encode(), v.encode("latin-1")) for k, v in headers.items()), body)
        elif call is not None and call.opaque:
            link.cut()
        else:
            record.status = 200  # committed by the first output, or by a keep-alive
            link.finish(b"data: %b\n\n" % body)
        await link.drained()

    # --- reading

    def _call(
        self, scope: Scope, head: RequestHead, link: ClientLink, record: FlightRecord, path: str, raw: bytes
    ) -> Call:
        """Reads a request whose body has come, and finds its pool."""
        operation = record.operation
        if operation == "other":
            query = scope["query_string"].decode("latin-1")
            body, model = self._peek(raw, head, query)
            path = engine_path(scope["raw_path"])
            pool = self._pool_of_other(model, path)
            if query:
                path = f"{path}?{query}"
            content_type = (b"content-type", head.content_type or b"application/json")
        else:
            try:
                body = read_object(raw)
            except BadBody as error:
                raise BadRequest(str(error), code="invalid_json") from error
            model = _checked_model(body, operation)
            found = self._fleet.pool_of(model)
            if found is None:
                raise self.unknown_model(model)
            pool = found
            content_type = _JSON
        record.pool = pool.name
        record.model = model or pool.name
        record.stream = stream = body.get("stream") is True and operation != "embeddings"
        if record.caller is not None:
            record.caller = record.caller.asking(body)
        request = GatewayRequest(
            record.request_id, operation, path, record.method, model, stream, raw, body, int(record.received_unix_s)
        )
        headers: tuple[Header, ...] = (content_type, (b"x-request-id", head.request_id))
        if pool.config.forward_authorization and (authorization := head.authorization):
            headers = (*headers, (b"authorization", authorization))
        signals = pool.signals.read(scope, body, model)
        return Call(request, pool, record, link, headers, head.trailers, signals)

    async def _receive_body(self, receive: Receive, head: RequestHead, link: ClientLink) -> bytes:
        """Receives the body piece by piece, up to the first byte too many, as long as it comes fast enough."""
        limit_bytes = self._max_body_bytes
        if (head.content_length or 0) > limit_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size_bytes = 0
        patience_s = self._read_s
        try:
            async with asyncio.timeout(patience_s) as patience:
                until_s = patience.when()
                assert until_s is not None
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        link.gone = True
                        raise asyncio.CancelledError
                    part: bytes = message.get("body", b"")
                    size_bytes += len(part)
                    if size_bytes > limit_bytes:
                        raise self._too_large()
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
                    if (earned_s := body_patience_s(self._read_s, size_bytes)) > patience_s:
                        until_s, patience_s = until_s + earned_s - patience_s, earned_s
                        patience.reschedule(until_s)
        except TimeoutError:
            raise RequestTooSlow("body", f"a client may take {self._read_s:g} s for each MiB") from None

    def _too_large(self) -> GatewayError:
        return BadRequest(
            f"the request body is larger than {self._max_body_bytes} bytes (limits_http.body)",
            status=413,
            code="request_too_large",
        )

    def _peek(self, raw: bytes, head: RequestHead, query: str) -> tuple[dict[str, Any], str]:
        """Finds the model in a request that is passed on: in its JSON, its form, or its query; "" if it names none."""
        body: dict[str, Any] = {}
        content_type = (head.content_type or b"").lower()
        if raw and not content_type.startswith(b"multipart/"):
            try:
                body = read_object(raw)
            except BadBody:
                body = {}
        model = body.get("model")
        if content_type.startswith(b"multipart/"):
            model = _model_part(raw, head.content_type or b"")
        if not isinstance(model, str):
            model = (parse_qs(query).get("model") or [""])[0]
        return body, model

    def _pool_of_other(self, model: str, path: str) -> Pool:
        """The pool of a request that is passed on, and may name no model."""
        pool = self._fleet.pool_of(model)
        if pool is not None:
            return pool
        if model:
            raise self.unknown_model(model)
        if len(self._fleet.pools) == 1:
            return next(iter(self._fleet.pools.values()))
        raise BadRequest(
            f"{path}: name a model (in the body, or as ?model=) so that Weir knows which pool to ask",
            status=404,
            code="model_not_found",
            param="model",
        )

    def unknown_model(self, model: str) -> GatewayError:
        """Returns the 404 that lists what comes near."""
        models = self._fleet.models
        near = difflib.get_close_matches(model[:200], models, n=3, cutoff=0.5) or models[:5]
        return BadRequest(
            f"the model {model[:200]!r} does not exist; did you mean {' or '.join(repr(n) for n in near)}?",
            status=404,
            code="model_not_found",
            param="model",
        )


def body_patience_s(read_s: float, size_bytes: int) -> float:
    """Returns how long a client may take for its body, of which so much has come: as long again for each MiB."""
    return read_s * (1 + size_bytes // _MIB)


def _model_part(form: bytes, content_type: bytes) -> str | None:
    """The field ``model`` of a multipart form, or None."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        return None
    mark = b"--" + (found[1] or found[2])
    at = form.find(mark)
    for _ in range(_MAX_PARTS):
        if at < 0:
            return None
        end = form.find(mark, at + len(mark))
        head, blank, value = form[at : at + _PART_HEAD_BYTES].partition(b"\r\n\r\n")
        if blank and _MODEL_FIELD.search(head):
            line, ended, _ = value.partition(b"\r\n")
            return line.decode("utf-8", "replace") if ended else None
        at = end
    return None


def _check_method(method: str, path: str, operation: Operation) -> None:
    if operation != "other" and method != "POST":
        raise BadRequest(f"{path} takes POST, not {method}", status=405, code="method_not_allowed", allow="POST")
    if method not in _METHODS:
        raise BadRequest(f"{method} is not served here", status=405, code="method_not_allowed", allow="GET, POST")


def _checked_model(body: dict[str, Any], operation: Operation) -> str:
    """Checks what Weir itself relies on; everything else is the engine's to judge."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        told = "is missing" if model is None else "must be a string that is not empty"
        raise BadRequest(f"the field model {told}: GET /v1/models lists what is served", param="model")
    if "stream" in body and not isinstance(body["stream"], _BOOL_OR_NULL):
        raise BadRequest("the field stream must be true or false", param="stream")
    if "stream_options" in body and not isinstance(body["stream_options"], _OBJECT_OR_NULL):
        raise BadRequest("the field stream_options must be an object", param="stream_options")
    if operation == "chat" and not isinstance(body.get("messages"), list):
        raise BadRequest("the field messages must be a list of messages", param="messages")
    return model
