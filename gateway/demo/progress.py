"""What the demo is doing and for how long: one moving line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

TERMINAL_EVERY_S = 0.1
ELSEWHERE_EVERY_S = 5.0


class Progress:
    """Writes the steps of the demo.

    Args:
        out: Where to; whether it is a terminal decides the form.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()

    @asynccontextmanager
    async def step(self, what: str) -> AsyncGenerator[None]:
        """Shows that ``what`` goes on for as long as the block does, and in the end how long it took."""
        start_s = time.perf_counter()
        if not self._terminal:
            self._write(f"{what} ...\n")
        ticker = asyncio.get_running_loop().create_task(self._tick(what, start_s))
        outcome = "failed after"
        try:
            yield
            outcome = "done in"
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
            self._write(f"{self._over}{what}: {outcome} {time.perf_counter() - start_s:.1f} s\n")

    def say(self, text: str = "") -> None:
        self._write(f"{text}\n")

    def write(self, text: str) -> None:
        """Writes a piece of a line at once."""
        self._write(text)

    async def _tick(self, what: str, start_s: float) -> None:
        while True:
            await asyncio.sleep(TERMINAL_EVERY_S if self._terminal else ELSEWHERE_EVERY_S)
            elapsed_s = time.perf_counter() - start_s
            if self._terminal:
                self._write(f"{self._over}{what} ... {elapsed_s:.1f} s")
            else:
                self._write(f"{what} ... {elapsed_s:.0f} s\n")

    @property
    def _over(self) -> str:
        """Takes the moving line away, so that the next text stands in its place."""
        return "\r\x1b[K" if self._terminal else ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
