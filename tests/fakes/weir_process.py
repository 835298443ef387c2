"""``weir`` as a user starts it: a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.patience import WAIT_S

ROOT = Path(__file__).parents[2]


class WeirProcess:
    """One that runs.

    Attributes:
        out: What it has written to standard output.
        err: What it has written to standard error.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.out = bytearray()
        self.err = bytearray()
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = asyncio.gather(self._keep(process.stdout, self.out), self._keep(process.stderr, self.err))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def says(self, words: str, within_s: float = WAIT_S) -> None:
        """Waits until either output holds the words; fails with what it has said if the process ends before."""
        async with asyncio.timeout(within_s):
            while words.encode() not in self.err and words.encode() not in self.out:
                assert self._process.returncode is None, self.err.decode()
                await asyncio.sleep(0.01)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    async def ended(self, within_s: float = WAIT_S) -> int:
        """Waits for the end of the process and of its output; returns its status."""
        async with asyncio.timeout(within_s):
            status = await self._process.wait()
            await self._readers
        return status

    async def _keep(self, stream: asyncio.StreamReader, kept: bytearray) -> None:
        while data := await stream.read(65_536):
            kept += data


@asynccontextmanager
async def weir(*argv: str, under: tuple[str, ...] = ()) -> AsyncGenerator[WeirProcess]:
    """Starts ``weir``, by another command if one is given; kills it on the way out, if it still runs."""
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = await asyncio.create_subprocess_exec(
        *under,
        sys.executable,
        "-m",
        "gateway",
        *argv,
        cwd=ROOT,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    running = WeirProcess(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.ended()


async def ended_well(process: WeirProcess) -> None:
    """Waits for its end, which has to be a good one."""
    assert await process.ended() == 0, process.err.decode()
    assert b"Traceback" not in process.err, process.err.decode()


async def refused(port: int) -> None:
    """Waits until nobody listens there."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return
            writer.transport.abort()
            await asyncio.sleep(0.01)
