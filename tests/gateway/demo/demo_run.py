"""The demo as a process of its own, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from tests.fakes.patience import WAIT_S

MARK = "WEIR_TEST_MARK"
WITHIN_S = 60.0
MODULE = ("-m", "gateway", "demo")


class DemoRun:
    """A running demo.

    Attributes:
        output: What it has written so far, both streams.
        temporary: Where it keeps its temporary files.
    """

    def __init__(self, process: asyncio.subprocess.Process, mark: str, temporary: Path) -> None:
        self.process = process
        self.output = ""
        self.temporary = temporary
        self._mark = mark

    async def until_it_writes(self, pattern: str) -> re.Match[str]:
        async with asyncio.timeout(WITHIN_S):
            while True:
                if found := re.search(pattern, self.output):
                    return found
                if not await self._read():
                    raise AssertionError(f"the demo ended without {pattern!r}:\n{self.output}")

    async def ended(self) -> int:
        """Waits for its end; returns its exit status."""
        async with asyncio.timeout(WITHIN_S):
            while await self._read():
                pass
            return await self.process.wait()

    async def engines(self, origin: str) -> list[str]:
        """Returns the engines' URLs."""
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            return [entry["url"] for entry in (await client.get(f"{origin}/weir/endpoints")).json()]

    def processes(self) -> set[int]:
        """The demo's own process and everything it started, as far as it runs; Linux tells."""
        needle = f"{MARK}={self._mark}".encode()
        found: set[int] = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if needle in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
            except OSError:  # gone by now, or another's
                continue
        return found

    async def everything_is_gone(self, within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while self.processes():  # noqa: ASYNC110 - the state of other processes has no event to wait for
                await asyncio.sleep(0.02)

    async def _read(self) -> bool:
        assert self.process.stdout is not None
        data = await self.process.stdout.read(4096)
        self.output += data.decode(errors="replace")
        return bool(data)


@asynccontextmanager
async def demo(
    temporary: Path, *options: str, program: Sequence[str] = MODULE, path: Path | None = None
) -> AsyncGenerator[DemoRun]:
    """Runs the demo, on a port that is free, for as long as the block does; ``path`` comes first in its import path."""
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark, "TMPDIR": str(temporary)}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        *(() if "--port" in options else ("--port", "0")),
        *options,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    run = DemoRun(process, mark, temporary)
    try:
        yield run
    finally:
        if process.returncode is None:
            process.kill()
            await run.ended()
        await run.everything_is_gone()
