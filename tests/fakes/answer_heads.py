"""Heads of answers, for readers that are tested without a socket."""

from __future__ import annotations

from gateway.upstream.contract import ResponseHead


def answer_head(content_type: str = "application/json", **headers: str) -> ResponseHead:
    """Returns a 200; underscores in names stand for hyphens."""
    named = {"content_type": content_type, **headers}
    return ResponseHead(200, tuple((key.replace("_", "-").encode(), value.encode()) for key, value in named.items()))
