"""Our uvicorn protocol class: hands the client's transport to the relay.

It is uvicorn's httptools protocol, and offers one thing more: ``scope["extensions"]["weir.relay"]`` is a
``DirectLink``, through which an answer is written to the transport without an await. (The two refer to each other:
whoever gets the scope takes the link out of it.) It also answers in JSON what uvicorn itself answers in plain text, and
bounds the head of a request, its size and how long it takes to come.

Of uvicorn's settings those that ``server`` never makes have no part here: a root path, a limit of concurrency or of
requests, WebSockets, state of the lifespan, its access log.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

from .direct_link import FLUSH_S, DirectLink
from .errors import BadRequest, RequestTooSlow

MAX_TRAILERS = 100
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)
_GLANCE_BYTES = 8192
"""So much is looked through faster than the end of a head is found in it."""
Refused = Callable[[BadRequest, str, str], str]
_KNOWN_TARGETS = 16  # few, for a client may send large ones


class _FlowControl(FlowControl):
    """uvicorn's, with an event only while a client takes nothing: one for each connection would be 800 bytes."""

    read_paused = False
    write_paused = False

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    async def drain(self) -> None:
        if self.write_paused:
            await super().drain()

    def pause_writing(self) -> None:
        if not self.write_paused:
            self.write_paused = True
            self._is_writable_event = asyncio.Event()


class RelayProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the extension ``weir.relay``. Bounds are set by ``configured``.

    Attributes:
        refused: Told of a head that is refused, with the method and the path as far as they came; returns the
            request's id. None if nobody takes note of them.
        running: The request whose application runs and whose answer is not over; those behind it wait in ``pipeline``.
    """

    # With these in its dictionary too, a connection would have one of its own instead of sharing the keys: 1 kB more
    __slots__ = (
        "_had_body",
        "_head_bytes",
        "_head_since_s",
        "_head_tail",
        "_head_timer",
        "_idle_since_s",
        "_idle_timer",
        "_in_body",
        "_in_head",
        "_read_bytes",
        "_refused",
        "_trailer_bytes",
        "running",
    )

    buffer_bytes = 262_144
    header_bytes = 65_536
    head_s = 60.0
    refused: Refused | None = None
    cycle: DirectLink
    pipeline: deque[DirectLink]  # type: ignore[assignment]
    app: ASGI3Application
    parser: httptools.HttpRequestParser

    @classmethod
    def configured(
        cls, *, buffer_bytes: int, header_bytes: int, head_s: float, refused: Refused | None = None
    ) -> type[RelayProtocol]:
        """Returns the class with these bounds.

        Args:
            buffer_bytes: Written to a client's transport and not yet taken, at which its engine is paused.
            header_bytes: The largest request head.
            head_s: How long a head may take to come, from its first byte.
            refused: As the attribute.
        """
        noted = None if refused is None else staticmethod(refused)
        bounds = {"buffer_bytes": buffer_bytes, "header_bytes": header_bytes, "head_s": head_s, "refused": noted}
        return type("RelayProtocol", (cls,), bounds)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.running: DirectLink | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._head_since_s = 0.0
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0  # in the reads before this one
        self._read_bytes = 0
        self._refused = False
        self._head_tail = b""  # the last bytes of a head that is not whole: its end may be split over reads
        self._had_body = False
        self._trailer_bytes = 0  # in reads without body bytes, since the last one with
        self.headers = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """uvicorn's, without asking the kernel for both addresses of every connection."""
        self.connections.add(self)
        self.transport = transport
        self.flow = _FlowControl(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        transport.set_write_buffer_limits(high=self.buffer_bytes)
        self._idle_since_s = self.loop.time()
        self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        running, self.running = self.running, None
        if running is not None:
            running.left()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        # What refers to itself is garbage until a collection, and a collection holds every stream up
        self.cycle = None  # type: ignore[assignment]
        self.pipeline.clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        if (running := self.running) is not None:
            running.blocked = True
            if running.source is not None:
                running.source.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if (running := self.running) is not None:
            running.blocked = False
            if running.source is not None:
                running.source.resume()

    def data_received(self, data: bytes) -> None:
        """uvicorn's, with bounds."""
        if self._refused:
            return
        size_bytes = len(data)
        if not self._in_body and (size_bytes > _GLANCE_BYTES or b"pgrade" in data or b"PGRADE" in data):
            data = _without_upgrade(data, self._head_tail)
            size_bytes = len(data)
        self._had_body = False
        self._read_bytes = size_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(BadRequest("the request is not valid HTTP/1.1", code="invalid_http"))
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        if self._in_head:
            self._read_head_on(data)
            return
        if self._in_body:
            self._read_body_on(data)
        if len(self.headers) > MAX_TRAILERS:
            self._refuse_trailers()

    def _read_head_on(self, data: bytes) -> None:
        """The head is not whole after this read, of which it may be all or the end."""
        if not self._head_bytes:
            self._head_since_s = self.loop.time()
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(self.head_s, self._refuse_if_late)
        self._head_tail = (self._head_tail + data)[-3:]
        if not self._had_body:  # else most of the read was the body before it
            self._head_bytes += len(data)
        if self._head_bytes > self.header_bytes:
            self._refuse_head()

    def _read_body_on(self, data: bytes) -> None:
        """The body is not whole after this read."""
        if self._had_body:
            self._trailer_bytes = 0
            return
        self._trailer_bytes += len(data)
        if self._trailer_bytes > self.header_bytes:
            self._refuse_trailers()

    def on_response_complete(self) -> None:
        """uvicorn's, without a timer for each answer: the connection has one."""
        self.running = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
            self._head_since_s = self.loop.time()
        if self.pipeline:
            self._begin(self.pipeline.pop())
            return
        self._idle_since_s = self.loop.time()

    def _close_if_idle(self) -> None:
        """Ends a connection that asks for nothing; at once, for close() would wait for a client that takes nothing."""
        self._idle_timer = None
        if self.transport.is_closing():
            return
        cycle = cast(DirectLink | None, self.cycle)  # None before the first request
        is_idle = not self._in_head and (cycle is None or cycle.response_complete)
        waited_s = self.loop.time() - self._idle_since_s if is_idle else 0.0
        if waited_s >= self.timeout_keep_alive:
            self.transport.abort()
        else:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive - waited_s, self._close_if_idle)

    def _refuse_if_late(self) -> None:
        """Refuses a head that has not come in time. One timer serves many: it may find a later head than began it."""
        self._head_timer = None
        if not self._in_head or self._refused or self.transport.is_closing():
            return
        held_back = self.flow.read_paused
        left_s = self.head_s if held_back else self.head_s - (self.loop.time() - self._head_since_s)
        if left_s > 0:
            self._head_timer = self.loop.call_later(left_s, self._refuse_if_late)
        else:
            self._refuse(RequestTooSlow("head", f"a client may take {self.head_s:g} s"))

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade that ``_without_upgrade`` did not see: the parser has lost the body."""
        if self._refused:
            return
        if not self.cycle.response_complete:
            self.cycle.left()  # nobody may take what there is for the whole request
        self._refuse(BadRequest("connection upgrades are not served", code="invalid_http"))

    # --- what the parser finds

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """uvicorn's, straight."""
        self._in_head = False
        self._head_tail = b""
        if self._refused:
            return
        # The reads that held the head held at least all of it: only a large one has to be added up
        if self._head_bytes + self._read_bytes > self.header_bytes and self._head_size() > self.header_bytes:
            self._refuse_head()
            return
        self._in_body = True
        self._trailer_bytes = 0
        headers, self.headers = self.headers, []  # from here on they are trailers, which go nowhere
        parser = self.parser
        http_version = parser.get_http_version()
        path, raw_path, query = _target(self.url)
        before = self.cycle  # None before the first
        cycle = DirectLink(
            self,
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": http_version,
                "server": None,
                "client": None,
                "scheme": self.scheme,  # type: ignore[typeddict-item]
                "method": parser.get_method().decode("ascii"),
                "root_path": "",
                "path": path,
                "raw_path": raw_path,
                "query_string": query,
                "headers": headers,
                "state": {},
            },
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
        )
        self.cycle = cycle  # pyright: ignore[reportIncompatibleVariableOverride]
        if b"expect" in dict(headers):
            cycle.waiting_for_100_continue = any(n == b"expect" and v.lower() == b"100-continue" for n, v in headers)
        if not before or before.response_complete:
            self._begin(cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft(cycle)

    def _begin(self, cycle: DirectLink) -> None:
        self.running = cycle
        if self.flow.write_paused:
            cycle.blocked = True
        cycle.scope["extensions"] = {"weir.relay": cycle}  # type: ignore[dict-item]
        task = self.loop.create_task(cycle.run_asgi(self.app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        cycle = self.cycle
        if self._refused or cycle.response_complete:
            return
        if not cycle.body:
            cycle.body = body
        else:
            if isinstance(cycle.body, bytes):
                cycle.body = bytearray(cycle.body)
            cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if cycle.news is not None:
            cycle.news.set()

    def on_message_complete(self) -> None:
        self._in_body = False
        self.url = b""  # of the next head nothing has come
        cycle = self.cycle
        if self._refused or cycle.response_complete:
            return
        cycle.more_body = False
        if cycle.news is not None:
            cycle.news.set()

    def _asked(self) -> tuple[str, str]:
        """Method and path of a head, as far as they came."""
        if not self.url:
            return "", ""
        return self.parser.get_method().decode("ascii"), self.url.partition(b"?")[0].decode("latin-1")

    def _head_size(self) -> int:
        return len(self.url) + sum(map(len, chain.from_iterable(self.headers)))

    def _refuse_head(self) -> None:
        message = f"the request's headers are larger than {self.header_bytes} bytes (limits_http.header)"
        self._refuse(BadRequest(message, status=431, code="headers_too_large"))

    def _refuse_trailers(self) -> None:
        self._refuse(BadRequest("the request has more trailers than anybody reads", code="invalid_http"))

    def _refuse(self, error: BadRequest) -> None:
        if self._refused:
            return
        self._refused = True
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            is_its_own = (cycle.more_body or cycle.disconnected) and not cycle.response_started and not self.pipeline
            if not is_its_own:
                cycle.keep_alive = False  # answers come in order: the one before ends, and this one is not given
                if cycle.response_started and cycle.more_body:
                    self.transport.close()
                return
            request_id = None  # it has a record of its own, which tells how it ended
        else:
            request_id = None if self.refused is None else self.refused(error, *self._asked())
        body = error.body(request_id)
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n"
        named = b"" if request_id is None else b"x-request-id: %b\r\n" % request_id.encode()
        self.transport.write(head % (STATUS_LINE[error.status], len(body), named) + body)
        self.transport.close()
        self.loop.call_later(FLUSH_S, self.transport.abort)  # a client that never takes what it was sent


@functools.lru_cache(_KNOWN_TARGETS)
def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """Returns the path of a request's target, the same as it was sent, and the query."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path
    path = raw_path.decode("ascii")
    return unquote(path) if "%" in path else path, raw_path, parsed.query or b""


def _without_upgrade(data: bytes, tail: bytes) -> bytes:
    """Renames ``Upgrade`` in a request's head: the offer (``h2c``, of Java's client) is declined, the request served.

    The parser would take everything after such a head for another protocol, and lose the body.
    """
    found = (tail + data).find(b"\r\n\r\n")
    end = max(found + 1 - len(tail), 0) if found >= 0 else len(data)
    if data.find(b"pgrade", 0, end) < 0 and data.find(b"PGRADE", 0, end) < 0:
        return data
    return _UPGRADE.sub(b"\r\nx-declined:", data[:end]) + data[end:]
