"""Programs that tests start beside themselves."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process

from tests.live.real_engine import PATIENCE

WITHIN_S = 120.0 * PATIENCE  # below the deadline of every test, so that what the program said is seen


async def ended(process: Process, within_s: float = WITHIN_S) -> tuple[bytes, bytes]:
    """Waits for its end; returns what it wrote to both of its outputs, of those that are pipes.

    Raises:
        TimeoutError: It took too long, and was killed.
    """
    try:
        return await asyncio.wait_for(process.communicate(), within_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
