"""Weir on the port that was asked for, or on the next free one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import BinaryIO

from .. import server
from ..config import Config, EndpointConfig, PoolConfig, RecorderConfig, ShutdownConfig
from ..recorder.location import MEMORY
from ..server import RunningServer
from .engine_kind import EngineKind

HOST = "127.0.0.1"
ALIAS = "default"
TRIES = 50
DRAIN_S = 2.0


class CannotListen(Exception):
    """No port could be had; the message says why and what to do."""


def configuration(kind: EngineKind, urls: Sequence[str]) -> Config:
    """Returns one pool over all engines."""
    endpoints = tuple(EndpointConfig(url=url, engine=kind.engine) for url in urls)
    return Config(
        pools={kind.model: PoolConfig(aliases=(ALIAS,), endpoints=endpoints)},
        recorder=RecorderConfig(path=MEMORY),  # nothing is left behind
        shutdown=ShutdownConfig(drain_s=DRAIN_S),
    )


async def listen(config: Config, port: int, access_out: BinaryIO, say: Callable[[str], None]) -> RunningServer:
    """Starts Weir; ``say`` is told if it takes another port. Port 0 is any free one.

    Raises:
        CannotListen: For another reason than a port in use, or because many ports are.
    """
    for candidate in range(port, min(port + TRIES, 65536)):
        try:
            running = await server.start(config.model_copy(update={"listen": f"{HOST}:{candidate}"}), access_out)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise CannotListen(f"cannot listen on port {candidate}: {error.strerror}; choose another --port") from error
        if port not in (0, running.port):
            say(f"Port {port} is in use, so Weir takes {running.port}; --port names another.")
        return running
    raise CannotListen(f"the ports from {port} on are in use; choose another --port")
