"""What a client can be told: one class a cause, and the one body shape, OpenAI's."""

from __future__ import annotations

from typing import Any, Literal

from adapters.json_values import write_json

Stage = Literal["request", "route", "connect", "engine", "stream", "gateway"]
Outcome = Literal["ok", "client_error", "shed", "upstream_error", "timeout", "cancelled", "internal_error"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


class GatewayError(Exception):
    """The request ends with this. Subclasses fix what does not vary.

    Attributes:
        status: HTTP status for the client.
        code: Few, stable values; what programs branch on.
        stage: Where in the request's way it happened.
        outcome: The request's outcome label.
        error_type: The ``error.type`` of telemetry; None for the client's own mistakes.
        retryable: Whether the same request may well succeed a little later.
        elsewhere: Whether an endpoint of another engine may do it now.
        type: OpenAI's error type; by the status if None.
        param: The request field at fault.
        endpoint: The endpoint that failed.
        retry_after_s: For the ``Retry-After`` header.
    """

    status = 500
    code = "internal_error"
    stage: Stage = "gateway"
    outcome: Outcome = "internal_error"
    error_type: str | None = "internal"
    retryable = False
    elsewhere = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        type: str | None = None,
        param: str | None = None,
        endpoint: str | None = None,
        retry_after_s: str | None = None,
        error_type: str | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status or self.status
        self.code = code or self.code
        self.type = type
        self.param = param
        self.endpoint = endpoint
        self.retry_after_s = retry_after_s
        self.error_type = error_type or self.error_type
        self.allow = allow

    def body(self, request_id: str | None) -> bytes:
        """Returns the JSON error body."""
        weir: dict[str, Any] = {
            "stage": self.stage,
            "endpoint": self.endpoint,
            "retryable": self.retryable,
            "request_id": request_id,
        }
        error = {
            "message": self.message,
            "type": self.type
            or _TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error"),
            "param": self.param,
            "code": self.code,
            "weir": weir,
        }
        return write_json({"error": error}, b"")  # an engine's words may hold half a surrogate pair

    def headers(self) -> dict[str, str]:
        """Returns the headers that go with it, besides those of every answer."""
        headers = {"content-type": "application/json"}
        if self.retry_after_s is not None:
            headers["retry-after"] = self.retry_after_s
        if self.allow is not None:
            headers["allow"] = self.allow
        # The SDK retries 408, 409, 429 and every 5xx by itself; it is told where that cannot help.
        if not self.retryable and (self.status >= 500 or self.status in (408, 409, 429)):
            headers["x-should-retry"] = "false"
        return headers


class BadRequest(GatewayError):
    """The client's mistake, found here."""

    status = 400
    code = "invalid_request"
    stage = "request"
    outcome = "client_error"
    error_type = None


class RequestTooSlow(BadRequest):
    """The client did not send the whole of its request in time."""

    status = 408
    code = "request_timeout"
    retryable = True

    def __init__(self, part: str, limit: str) -> None:
        super().__init__(f"the request's {part} came too slowly: {limit} (limits_http.read)")


class EngineRefused(GatewayError):
    """The client's mistake, found by the engine: passed on with the engine's status and words."""

    status = 400
    code = "invalid_request"
    stage = "engine"
    outcome = "client_error"
    error_type = None


class NoCapable(GatewayError):
    """No endpoint of the pool, healthy or not, has an engine that can do what the request asks for."""

    status = 400
    code = "unsupported_parameter"
    stage = "route"
    outcome = "client_error"
    error_type = None


class NoEndpoint(GatewayError):
    """No endpoint of the pool takes traffic, or none is left to try."""

    status = 503
    code = "no_endpoint"
    stage = "route"
    outcome = "shed"
    error_type = "shed"
    retryable = True


class NoConnection(GatewayError):
    """Weir's own machine has no file, port or memory for one more connection."""

    status = 503
    code = "no_connection"
    stage = "connect"
    outcome = "shed"
    error_type = "local"
    retryable = True


class ShuttingDown(GatewayError):
    """The process is being stopped, and the request has outlasted the drain: nobody's fault."""

    status = 503
    code = "shutting_down"
    outcome = "shed"
    error_type = "shutting_down"
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "Weir is being stopped and could not end this request in time: send it again", retry_after_s="1"
        )

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "x-should-retry": "true"}


class EngineBusy(GatewayError):
    """The engine said 429 or 503."""

    status = 503
    code = "engine_busy"
    stage = "engine"
    outcome = "shed"
    retryable = True


class UpstreamFailed(GatewayError):
    """The engine refused the connection, broke off, or answered what is no answer."""

    status = 502
    code = "upstream_failed"
    stage = "engine"
    outcome = "upstream_error"
    retryable = True


class UpstreamAuthFailed(GatewayError):
    """The engine refused our credential: nothing that the client can mend."""

    status = 502
    code = "upstream_auth_failed"
    stage = "engine"
    outcome = "upstream_error"


class UpstreamTimeout(GatewayError):
    """One of the timers of the pool ran out."""

    status = 504
    code = "upstream_timeout"
    stage = "engine"
    outcome = "timeout"
    retryable = True


class InternalError(GatewayError):
    """A fault of ours."""
