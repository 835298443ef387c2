"""Programs that tests start beside themselves."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.fakes.patience import WAIT_S
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


@asynccontextmanager
async def stopped_at_the_end(process: Process) -> AsyncGenerator[None]:
    """Asks a server to end on the way out, and makes it if it does not."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(WAIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
