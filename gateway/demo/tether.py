"""Ends this process when the one that started it is gone, however that one ended.

The starter holds the other end of our standard input and never writes to it; the kernel closes it with the starter.
This works on every POSIX system and needs no signal, which a process that is killed could not send.
"""

from __future__ import annotations

import os
import threading

_STDIN = 0


def tie_to_starter() -> None:
    """Watches standard input from a thread of its own, until it ends."""
    threading.Thread(target=_wait_for_end, name="tether", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(_STDIN, 4096):
        pass
    os._exit(0)
