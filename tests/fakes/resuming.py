"""Pools whose endpoints can go on with each other's streams, and what a client reads of such a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fakes.gateway import RunningGateway, config
from tests.fakes.raw_client import Reply

PATIENT: dict[str, Any] = {"failures": 1000, "interval": "1h"}
WITH_USAGE = {"include_usage": True}


def pool(*urls: str, engine: str = "llamacpp", weights: Sequence[str | None] = (), **options: object) -> str:
    """Endpoints a, b, c, ... of equal weights, unless told otherwise."""
    labels = weights or ["w"] * len(urls)
    endpoints = [
        {"id": name, "url": url, "engine": engine} | ({} if label is None else {"weights": label})
        for name, url, label in zip("abc", urls, labels, strict=False)
    ]
    return config(*endpoints, pool_options={"health": PATIENT, **options})


def usage_of(reply: Reply) -> tuple[int, int, int]:
    (usage,) = [each["usage"] for each in reply.chunks if each.get("usage")]
    assert "weir_estimated" not in usage
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


async def broken_at_a(gw: RunningGateway, body: dict[str, Any], path: str = "/v1/chat/completions") -> Reply:
    """Asks until a was asked first: the policy begins at either."""
    for _ in range(2):
        reply = await gw.post(body, path)
        if reply.header("x-weir-endpoint") == "a":
            return reply
    raise AssertionError("a was never asked")
