"""Weir's own questions to a server, without an endpoint."""

from __future__ import annotations

from urllib.parse import urlsplit

from gateway.upstream.native import NativeUpstream


def fresh_upstream(url: str) -> NativeUpstream:
    """A new connection for each question."""
    parts = urlsplit(url)
    return NativeUpstream(parts.hostname or "", parts.port or 80, tls=None, idle_s=0)
