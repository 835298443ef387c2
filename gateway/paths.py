"""Request paths: what is forgiven, and what may be passed on to an engine."""

from __future__ import annotations

import re
from urllib.parse import unquote

from .errors import BadRequest

_SLASHES = re.compile(r"/{2,}")
_VERSIONS = re.compile(r"^(?:/v1)+(?=/|$)")
_WITHOUT_VERSION = ("/chat/completions", "/completions", "/embeddings", "/models")
_TARGET = re.compile(r"[!-~]+")


def canonical(path: str) -> str:
    """Forgives what base URLs are spelled like: doubled and trailing slashes, a doubled or missing ``/v1``."""
    path = _SLASHES.sub("/", path)
    if len(path) > 1:
        path = path.rstrip("/") or "/"
    path = _VERSIONS.sub("/v1", path)
    if path in _WITHOUT_VERSION or path.startswith("/models/"):
        path = "/v1" + path
    return path


def engine_path(raw_path: bytes) -> str:
    """Returns the path of a request that is passed on, as the client spelled it: its escapes stay escapes.

    Raises:
        BadRequest: It would leave ``/v1``, or could be read as more than a path.
    """
    path = canonical(raw_path.decode("latin-1"))
    if not _TARGET.fullmatch(path) or any(unquote(part) in (".", "..") for part in path.split("/")):
        raise BadRequest("the path holds what no path may hold: plain segments below /v1 only", code="invalid_path")
    return path
