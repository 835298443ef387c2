"""The contract of an upstream transport: one HTTP exchange with an engine, told by callbacks.

A transport sends one request and then calls its sink: ``on_head`` once, ``on_body`` once per read, then exactly
one of ``on_end`` and ``on_error``. All calls come from the event loop's thread, none during ``send`` itself, none
after ``abort``, ``release`` or the last call. So the relay needs no task and no queue per chunk.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class TransportError(Exception):
    """The exchange failed below HTTP. The message names no client data.

    Attributes:
        kind: ``connect``, ``connect_timeout``, ``local`` (Weir's machine has no file, port or memory for a connection,
            or Weir is closing: no engine is to blame), ``reset`` (the peer reset or closed before the head was whole),
            ``truncated`` (the body broke off), ``malformed`` (not HTTP) or ``encoding`` (a content coding
            although none was accepted).
        sent: Whether the engine may have begun to work on the request.
    """

    def __init__(self, kind: str, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.sent = sent


def closing() -> TransportError:
    """Returns why nothing is sent by an upstream that is being closed."""
    return TransportError("local", "Weir closes its connections", sent=False)


class WireRequest(NamedTuple):
    """One HTTP request.

    Attributes:
        method: ``POST`` or ``GET``.
        target: Path and query as on the request line, base path of the endpoint included.
        headers: Names in lower case. ``host``, ``content-length`` and ``accept-encoding`` are the transport's.
        body: May be empty.
    """

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class ResponseHead(NamedTuple):
    """Status and headers of the answer; header names in lower case, in order, repeats kept."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]

    def get(self, name: bytes) -> bytes | None:
        """Returns the first header of that (lower case) name, or None."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def content_type(self) -> str:
        """In lower case; "" if there is none."""
        return (self.get(b"content-type") or b"").decode("latin-1").lower()

    def may_be(self, content_type: str) -> bool:
        """Whether the body is of this type, or nobody says what it is."""
        said = self.content_type
        return not said or content_type in said


class Sink(Protocol):
    """Who is told about an exchange."""

    def on_head(self, head: ResponseHead) -> None:
        """The final head has come (never a 1xx)."""
        ...

    def on_body(self, data: bytes) -> None:
        """Body bytes of one read, transfer coding removed; never empty."""
        ...

    def on_end(self) -> None:
        """The body is whole."""
        ...

    def on_error(self, error: TransportError) -> None:
        """The exchange failed; nothing follows."""
        ...


class Exchange(Protocol):
    """One request under way.

    Attributes:
        reused: Whether it went out on a kept-alive connection (after a silent retry: False).
        connected_s: Monotonic time at which a connection was at hand.
        sent_s: Monotonic time at which the request was handed to the socket.
    """

    reused: bool
    connected_s: float
    sent_s: float

    def pause(self) -> None:
        """Stops reading from the engine; what one read holds may still come."""
        ...

    def resume(self) -> None: ...

    def abort(self) -> None:
        """Ends the exchange and closes its connection at once. Idempotent, also after the end."""
        ...

    def release(self) -> None:
        """Wants nothing more, but the answer is nearly over: the connection may be kept if it ends within a second."""
        ...


class Upstream(Protocol):
    """Connections to one endpoint."""

    async def send(self, request: WireRequest, sink: Sink, *, connect_timeout_s: float) -> Exchange:
        """Connects (or reuses a connection), sends the request and returns; the sink is told the rest.

        A reused connection that closes before any byte of the answer is replaced once, silently, by a new one.
        Cancelling this call leaves nothing open.

        Raises:
            TransportError: No connection could be had (``connect``, ``connect_timeout``, ``local``, ``reset``).
        """
        ...

    @property
    def idle_connections(self) -> int: ...

    @property
    def open_connections(self) -> int:
        """Connections to the engine that exist now, idle ones included."""
        ...

    async def aclose(self) -> None:
        """Closes everything; open exchanges are aborted without a call to their sinks."""
        ...
