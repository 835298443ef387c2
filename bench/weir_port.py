"""Where a Weir that was just started listens: it tells on standard error."""

from __future__ import annotations

import asyncio


async def port_of(weir: asyncio.subprocess.Process) -> int:
    """Returns the port, once Weir serves."""
    assert weir.stderr is not None
    async for line in weir.stderr:
        _, found, rest = line.partition(b"http://127.0.0.1:")
        if found and b"serving " in line:
            return int(rest.split()[0].rstrip(b"/,.").split(b"/")[0])
    raise SystemExit("Weir did not start")
