"""How a process that serves is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal

from .server import RunningServer

log = logging.getLogger("weir")

INSISTING = (signal.SIGINT, signal.SIGTERM)
"""A second one of these ends what still runs. Not SIGHUP: a terminal that closes sends it twice, by its shell too."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that ask this process to stop: SIGHUP is one, unless ``nohup`` has had it ignored."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return INSISTING
    return (*INSISTING, signal.SIGHUP)


class Stopping:
    """SIGINT and SIGTERM: the first asks to stop, the second not to wait, a third ends the process as ever.

    SIGHUP asks to stop as well, and however often it comes, it asks for no more.

    Attributes:
        asked: Set by the first; whoever else wants the process to stop sets it too, and that counts as no signal.
    """

    def __init__(self, running: RunningServer) -> None:
        self.asked = asyncio.Event()
        self._running = running
        self._signals = 0
        self._hurried = False
        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._came, number)

    def hurry(self) -> None:
        """Asks to stop without waiting for running requests."""
        self.asked.set()
        if self._hurried:
            return
        self._hurried = True
        for number in INSISTING:
            asyncio.get_running_loop().remove_signal_handler(number)
        log.warning("stopping at once: running requests are ended")
        self._running.hurry()

    def _came(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals > 1 and number in INSISTING:
            self.hurry()
        else:
            self.asked.set()
