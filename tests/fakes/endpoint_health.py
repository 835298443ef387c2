"""What a running gateway says of the health of its endpoints."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fakes.gateway import RunningGateway
from tests.fakes.patience import WAIT_S


async def listed(gw: RunningGateway) -> list[dict[str, Any]]:
    """Everything that it tells of each endpoint."""
    found: list[dict[str, Any]] = (await gw.get("/weir/endpoints")).json()
    return found


async def health_of(gw: RunningGateway, endpoint: int = 0) -> str:
    """One endpoint's, by its place in the configuration."""
    return str((await listed(gw))[endpoint]["health"])


async def becomes(
    gw: RunningGateway, health: str, endpoint: int = 0, meanwhile: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Asks until it is so, and does something between two questions; fails with what it is instead."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := await health_of(gw, endpoint)) != health:
        assert time.monotonic() < deadline_s, found
        if meanwhile is not None:
            await meanwhile()
