"""What ended an attempt, in the client's words, and whose fault it was."""

from __future__ import annotations

from adapters.joined_stream import NotJoined
from adapters.types import AdapterError, EngineFailed, MalformedStream, Unsupported
from policies.retry import Blame, blame

from .errors import (
    EngineBusy,
    EngineRefused,
    GatewayError,
    NoCapable,
    NoConnection,
    UpstreamAuthFailed,
    UpstreamFailed,
    UpstreamTimeout,
)
from .relay import TimedOut
from .upstream.contract import TransportError

AttemptFailure = AdapterError | TransportError | TimedOut

_TIMER_TYPES = {
    "head": "first_token_timeout",
    "first_token": "first_token_timeout",
    "stall": "stall_timeout",
    "total": "total_timeout",
    "wedged": "first_token_timeout",
}
_TIMER_WORDS = {
    "head": "did not begin to answer",
    "first_token": "gave no first token",
    "stall": "gave no further token",
    "total": "did not finish",
    "wedged": "gave nothing to any request that waits there",
}
_KIND_TYPES = {"truncated": "truncated_stream", "malformed": "malformed_stream", "encoding": "malformed_stream"}


def explain(
    failure: AttemptFailure, endpoint: str, *, own_path: bool = True, own_credential: bool = True
) -> tuple[GatewayError, Blame]:
    """Returns what the client is told if this attempt was the last, and who is to blame.

    Args:
        failure: What ended the attempt.
        endpoint: Id of the endpoint.
        own_path: The path is one of Weir's choice, not one that the client wished to be passed on.
        own_credential: The engine was shown the operator's credential or none, not the client's.
    """
    if isinstance(failure, Unsupported):
        refusal = NoCapable(failure.message, param=failure.param)
        refusal.elsewhere = True
        return refusal, "client"
    if isinstance(failure, EngineFailed):
        whose = blame(failure.status, own_path=own_path, own_credential=own_credential)
        return _engine(failure, endpoint, whose), whose
    if isinstance(failure, TimedOut):
        rounded = failure.learned or failure.timer == "wedged"
        limit = f"{round(failure.limit_s, 1) if rounded else failure.limit_s:g} s"
        if failure.timer != "wedged":
            limit += f" (timeouts.{'learn' if failure.learned else failure.timer})"
        words = f"{endpoint} {_TIMER_WORDS[failure.timer]} within {limit}"
        error = UpstreamTimeout(words, endpoint=endpoint, error_type=_TIMER_TYPES[failure.timer])
        if failure.timer == "total":
            error.retryable = False  # there is no time left to try elsewhere
            return error, "client"
        return error, "engine"
    if isinstance(failure, TransportError):
        words = f"{endpoint}: {failure}"
        if failure.kind == "local":
            return NoConnection(words, endpoint=endpoint), "client"  # which says: nothing is counted against it
        kind = _KIND_TYPES.get(failure.kind, failure.kind)
        if failure.kind == "connect_timeout":
            return UpstreamTimeout(words, endpoint=endpoint, error_type=kind), "engine"
        return UpstreamFailed(words, endpoint=endpoint, error_type=kind), "engine"
    if isinstance(failure, NotJoined):
        return UpstreamFailed(f"{endpoint}: {failure}", endpoint=endpoint, error_type="not_joined"), "client"
    kind = "malformed_stream" if isinstance(failure, MalformedStream) else "truncated_stream"
    return UpstreamFailed(f"{endpoint}: {failure}", endpoint=endpoint, error_type=kind), "engine"


def broken_off(failure: AttemptFailure, endpoint: str) -> GatewayError:
    """Returns what ends a stream after its first output: whatever the engine said, it broke its answer off."""
    error, _ = explain(failure, endpoint)
    if error.outcome in ("upstream_error", "timeout"):
        return error
    return UpstreamFailed(error.message, endpoint=endpoint, type=error.type, error_type="engine_error_event")


def _engine(failure: EngineFailed, endpoint: str, whose: Blame) -> GatewayError:
    status, message = failure.status, failure.message
    if status < 400:
        words = f"{endpoint} answered with a redirect; set its url to where it leads (status {status})"
        return UpstreamFailed(words, endpoint=endpoint, error_type=str(status))
    if whose == "client":
        code = failure.code if failure.code and not failure.code.isdecimal() else None
        if code is None and status == 404:
            code = "not_found"
        return EngineRefused(
            message, status=status, code=code, type=failure.type, param=failure.param, endpoint=endpoint
        )
    if whose == "credential":
        words = f"{endpoint} refused Weir's credential; the operator has to set its api_key"
        return UpstreamAuthFailed(words, endpoint=endpoint, error_type=str(status))
    if whose == "busy":
        return EngineBusy(message, status=status, endpoint=endpoint, error_type=str(status))
    return UpstreamFailed(
        message,
        status=status if status <= 599 else 502,
        type=failure.type,
        endpoint=endpoint,
        error_type=str(status),
    )
