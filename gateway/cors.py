"""What web pages may read: the cross-origin headers of answers, and the answer to a browser's preflight."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.responses import Response

Headers = list[tuple[bytes, bytes]]

_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_NAMES = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,2048}")
_USUAL_NAMES = "authorization, content-type, x-request-id"
_KEPT_S = 600


class Cors:
    """The rules of ``cors.allow_origins``.

    Attributes:
        enabled: Whether any page may call.
    """

    def __init__(self, allow_origins: Sequence[str]) -> None:
        self.enabled = bool(allow_origins)
        self._all = "*" in allow_origins
        self._origins = frozenset(origin.encode() for origin in allow_origins)

    def headers(self, origin: bytes | None) -> Headers:
        """Returns what goes with every answer to this origin; None is a request that is no page's."""
        if self._all:
            return [(b"access-control-allow-origin", b"*")]
        if not self.enabled:
            return []
        vary = (b"vary", b"origin")  # also without an origin: a cache must not give that answer to a page
        if origin is None or origin not in self._origins:
            return [vary]
        return [(b"access-control-allow-origin", origin), vary]

    def preflight(self, asked_headers: str | None) -> Response:
        """Returns the answer to ``OPTIONS``, to go with ``headers``.

        Args:
            asked_headers: ``access-control-request-headers``; whatever a page wants to send, it may.
        """
        names = asked_headers if asked_headers and _NAMES.fullmatch(asked_headers) else _USUAL_NAMES
        return Response(
            status_code=204,
            headers={
                "access-control-allow-methods": _METHODS,
                "access-control-allow-headers": names,
                "access-control-max-age": str(_KEPT_S),
            },
        )
