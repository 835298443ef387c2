"""One worker process of several: serves until its supervisor, or a signal, tells it to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvloop

from .. import server
from ..config import Config
from ..instruments.worker_numbers import Seat
from ..stopping import Stopping
from ..tuning import Collections

READY = b"r"  # what a worker says to its supervisor
STOP = b"s"  # what it hears; the end of the line means the same: the supervisor is gone
HURRY = b"h"


def run(config: Config, seat: Seat, line: socket.socket) -> int:
    """Serves; returns the exit status.

    Args:
        config: With addresses whose ports are known.
        seat: Which worker this is.
        line: To the supervisor.

    Raises:
        CannotListen: For ``listen`` or ``admin.listen``.
    """
    return uvloop.run(_work(config, seat, line))


def received(line: socket.socket) -> bytes:
    """Returns what the other process has said, b"" once it is gone: also if it died without reading all it was told."""
    try:
        return line.recv(64)
    except ConnectionError:
        return b""


async def _work(config: Config, seat: Seat, line: socket.socket) -> int:
    running = await server.start(config, seat=seat)
    stopping = Stopping(running)
    Collections(running.app.fleet.in_flight)
    loop = asyncio.get_running_loop()
    line.setblocking(False)

    def heard() -> None:
        words = received(line)
        if not words:
            loop.remove_reader(line)
        if HURRY in words:
            stopping.hurry()
        stopping.asked.set()

    loop.add_reader(line, heard)
    with contextlib.suppress(ConnectionError):  # the supervisor is gone: that is heard
        line.send(READY)
    await stopping.asked.wait()
    await running.stop()
    loop.remove_reader(line)
    return 0
