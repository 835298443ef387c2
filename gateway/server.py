"""Starts and stops the server: uvicorn with our protocol class, on a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import BinaryIO

import uvicorn

from .app import App
from .asgi_relay import RelayProtocol
from .config import Config

BACKLOG = 4096
# Clients keep idle connections for as long as they like; nginx's own default is 75 s.
CLIENT_IDLE_S = 75


class _Server(uvicorn.Server):
    """uvicorn's server, with signals left to whoever runs the loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class RunningServer:
    """A server that accepts requests.

    Attributes:
        port: The port it listens on.
        app: Its application.
    """

    def __init__(self, app: App, server: _Server, task: asyncio.Task[None], port: int) -> None:
        self.app = app
        self.port = port
        self._server = server
        self._task = task

    async def stop(self) -> None:
        """Refuses new work, lets running requests end within ``shutdown.drain``, then ends them."""
        self._server.should_exit = True
        await self._task

    async def wait(self) -> None:
        """Returns when it has ended."""
        await asyncio.shield(self._task)


async def start(config: Config, access_out: BinaryIO | None = None) -> RunningServer:
    """Starts serving.

    Raises:
        OSError: The address cannot be listened on.
    """
    app = App(config, access_out)
    listener = _listen(config.listen_host, config.listen_port)
    settings = uvicorn.Config(
        app,
        http=RelayProtocol.configured(
            buffer_bytes=config.stream.buffer_bytes, header_bytes=config.limits_http.header_bytes
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # one layer less; nothing here reads the client's address
        timeout_keep_alive=CLIENT_IDLE_S,
        timeout_graceful_shutdown=max(1, round(config.shutdown.drain_s)),
        backlog=BACKLOG,
    )
    server = _Server(settings)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    while not server.started:
        if task.done():
            await task
            raise RuntimeError("the server ended while it started")
        await asyncio.sleep(0.005)
    return RunningServer(app, server, task, listener.getsockname()[1])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
