"""How a process that serves is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal

from .server import RunningServer

log = logging.getLogger("weir")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """SIGINT and SIGTERM: the first asks to stop, the second not to wait, a third ends the process as ever.

    Attributes:
        asked: Set by the first; whoever else wants the process to stop sets it too, and that counts as no signal.
    """

    def __init__(self, running: RunningServer) -> None:
        self.asked = asyncio.Event()
        self._running = running
        self._signals = 0
        self._hurried = False
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._came)

    def hurry(self) -> None:
        """Asks to stop without waiting for running requests."""
        self.asked.set()
        if self._hurried:
            return
        self._hurried = True
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
        log.warning("stopping at once: running requests are ended")
        self._running.hurry()

    def _came(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self.hurry()
        else:
            self.asked.set()
