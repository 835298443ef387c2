"""What Weir reads from the head of a client's request; one pass over the headers."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from starlette.types import Scope

_READ = frozenset(
    b"x-request-id x-request-trace-id content-length content-type traceparent tracestate authorization "
    b"origin te".split()
)
_SANE_ID = re.compile(rb"[A-Za-z0-9._:+/=@-]{1,128}")
# Version 00 ends here; a later one may have more behind another hyphen, and ff is none.
_TRACEPARENT = re.compile(
    rb"(?:00-%b|(?!00|ff)[0-9a-f]{2}-%b(?:-.*)?)" % ((rb"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}",) * 2)
)
_TRACESTATE = re.compile(rb"[\t -~]{1,4096}")


@dataclass(slots=True)
class RequestHead:
    """The headers that matter; the others go nowhere.

    Attributes:
        request_id: The client's (``x-request-id`` or ``X-Request-Trace-ID``) if it is sane, else a new one.
        traceparent: Only if valid, and the only one.
        tracestate: All lines of it together. What is too long to be passed on to engines, or no text, is left out.
        content_length: None if absent.
        trailers: The client takes HTTP trailers.
    """

    request_id: bytes = b""
    traceparent: bytes | None = None
    tracestate: bytes | None = None
    authorization: bytes | None = None
    content_type: bytes | None = None
    content_length: int | None = None
    origin: bytes | None = None
    trailers: bool = False


def read_head(scope: Scope) -> RequestHead:
    head = RequestHead()
    traceparents = 0
    for name, value in scope["headers"]:
        if name not in _READ:
            continue
        if name == b"x-request-id" or (name == b"x-request-trace-id" and not head.request_id):
            if _SANE_ID.fullmatch(value):
                head.request_id = value
        elif name == b"content-length":
            head.content_length = int(value) if value.isdigit() else None
        elif name == b"content-type":
            head.content_type = value
        elif name == b"traceparent":
            traceparents += 1
            if traceparents == 1 and _TRACEPARENT.fullmatch(value):
                head.traceparent = value
            else:
                head.traceparent = None
        elif name == b"tracestate":
            head.tracestate = value if head.tracestate is None else head.tracestate + b"," + value
        elif name == b"authorization":
            head.authorization = value
        elif name == b"origin":
            head.origin = value
        elif name == b"te":
            head.trailers = b"trailers" in value.lower()
    if head.tracestate is not None and not _TRACESTATE.fullmatch(head.tracestate):
        head.tracestate = None
    if not head.request_id:
        head.request_id = b"%032x" % random.getrandbits(128)  # an id, no secret
    return head


def pick(scope: Scope, names: frozenset[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers of these (lower case) names, in the client's order."""
    return tuple([header for header in scope["headers"] if header[0] in names])
