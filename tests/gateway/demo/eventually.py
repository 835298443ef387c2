"""Waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.fakes.patience import WAIT_S


async def eventually(holds: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Polls until a condition holds; fails after ``within_s``."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
