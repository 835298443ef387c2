"""What can be wrong with an engine's answer. ``types`` offers the same names."""

from __future__ import annotations


class AdapterError(Exception):
    """The engine broke its contract. The message is safe to show to a client."""


class MalformedStream(AdapterError):
    """Bytes that are no frame of this dialect."""


class TruncatedStream(AdapterError):
    """The body ended before the engine said that the answer was finished."""


class EngineFailed(AdapterError):
    """The engine reported an error: as an HTTP status, or inside a 200.

    Attributes:
        status: HTTP status the engine meant, 400 to 599.
        type: The engine's own error type, or None.
        code: The engine's own error code as text, or None.
        param: The request field it complained of, or None.
    """

    def __init__(
        self, status: int, message: str, *, type: str | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param

    def meant(self, status: int, *, type: str | None = None) -> EngineFailed:
        """Returns the same error with the status (and type) that it stands for, where the engine's own misleads."""
        return EngineFailed(status, self.message, type=type or self.type, code=self.code, param=self.param)


class Unsupported(EngineFailed):
    """This engine cannot do what the request asks for; another may. The engine was not asked."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(400, message, type="invalid_request_error", code="unsupported_parameter", param=param)
