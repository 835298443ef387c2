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
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


@dataclass(slots=True)
class RequestHead:
    """The headers that matter; the others go nowhere.

    Attributes:
        request_id: The client's (``x-request-id`` or ``X-Request-Trace-ID``) if it is sane, else a new one.
        traceparent: Only if valid.
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
            if _TRACEPARENT.fullmatch(value) and not value.startswith(b"ff"):
                head.traceparent = value
        elif name == b"tracestate":
            head.tracestate = value
        elif name == b"authorization":
            head.authorization = value
        elif name == b"origin":
            head.origin = value
        elif name == b"te":
            head.trailers = b"trailers" in value.lower()
    if not head.request_id:
        head.request_id = b"%032x" % random.getrandbits(128)  # an id, no secret
    return head
