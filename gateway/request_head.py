"""What Weir reads from the head of a client's request; seldom a pass over the headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from random import getrandbits

from starlette.types import Scope

from policies.types import Header

_SELDOM = frozenset(b"x-request-id x-request-trace-id traceparent tracestate origin te".split())
"""Most requests have none of these."""
_SANE_ID = re.compile(rb"[A-Za-z0-9._:+/=@-]{1,128}")
# Version 00 ends here; a later one may have more behind another hyphen, and ff is none.
_TRACEPARENT = re.compile(
    rb"(?:00-%b|(?!00|ff)[0-9a-f]{2}-%b(?:-.*)?)" % ((rb"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}",) * 2)
)
_TRACESTATE = re.compile(rb"[\t -~]{1,4096}")


class RequestHead:
    """The headers that matter; the others go nowhere.

    Args:
        request_id: As below.
        headers: All of them, names in lower case: what few requests need is looked up when it is asked for.

    Attributes:
        request_id: The client's (``x-request-id`` or ``X-Request-Trace-ID``) if it is sane, else a new one.
        traceparent: Only if valid, and the only one.
        tracestate: All lines of it together. What is too long to be passed on to engines, or no text, is left out.
        trailers: The client takes HTTP trailers.
    """

    traceparent: bytes | None = None
    tracestate: bytes | None = None
    origin: bytes | None = None
    trailers = False

    def __init__(self, request_id: bytes, headers: Sequence[Header] = ()) -> None:
        self.request_id = request_id
        self._headers = headers

    @property
    def authorization(self) -> bytes | None:
        return self._last(b"authorization")

    @property
    def content_type(self) -> bytes | None:
        return self._last(b"content-type")

    @property
    def content_length(self) -> int | None:
        """None if absent."""
        value = self._last(b"content-length")
        return int(value) if value is not None and value.isdigit() else None

    def _last(self, name: bytes) -> bytes | None:
        return dict(self._headers).get(name)


def new_request_id() -> bytes:
    return b"%032x" % getrandbits(128)  # an id, no secret


def read_head(scope: Scope) -> RequestHead:
    headers = scope["headers"]
    head = RequestHead(new_request_id(), headers)
    if not _SELDOM.isdisjoint(dict(headers)):
        _read_seldom(head, headers)
    return head


def _read_seldom(head: RequestHead, headers: Iterable[Header]) -> None:
    own_id = head.request_id
    traceparents = 0
    for name, value in headers:
        if name == b"x-request-id" or (name == b"x-request-trace-id" and head.request_id is own_id):
            if _SANE_ID.fullmatch(value):
                head.request_id = value
        elif name == b"traceparent":
            traceparents += 1
            if traceparents == 1 and _TRACEPARENT.fullmatch(value):
                head.traceparent = value
            else:
                head.traceparent = None
        elif name == b"tracestate":
            head.tracestate = value if head.tracestate is None else head.tracestate + b"," + value
        elif name == b"origin":
            head.origin = value
        elif name == b"te":
            head.trailers = b"trailers" in value.lower()
    if head.tracestate is not None and not _TRACESTATE.fullmatch(head.tracestate):
        head.tracestate = None


def pick(scope: Scope, names: frozenset[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers of these (lower case) names, in the client's order."""
    return tuple([header for header in scope["headers"] if header[0] in names])
