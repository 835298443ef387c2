"""Starts and stops the servers, uvicorn with our protocol class: one for clients, and one for ``admin.listen``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, BinaryIO

import uvicorn
from starlette.types import ASGIApp

from .app import App
from .asgi_relay import RelayProtocol
from .config import Config
from .config.values import split_address
from .dead_peers import CLIENT_S, find_dead_peer
from .instruments.worker_numbers import Seat

BACKLOG = 4096
# Clients keep idle connections for as long as they like; nginx's own default is 75 s.
CLIENT_IDLE_S = 75
TICK_S = 0.1  # uvicorn's own: it counts ten of them for a new date header
POLL_S = 0.01
# For what is left after the drain: error events on their way to clients, connections that nobody reads.
FAREWELL_S = 1.0


class CannotListen(OSError):
    """An address cannot be listened on.

    Attributes:
        key: The key of the configuration that names the address.
        address: It.
    """

    def __init__(self, key: str, address: str, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.key = key
        self.address = address


class _Server(uvicorn.Server):
    """uvicorn's server that stops when told to, at once; signals are left to whoever runs the loop."""

    def __init__(self, config: uvicorn.Config, drain_s: float) -> None:
        super().__init__(config)
        self._drain_s = drain_s
        self._patient_until_s = 0.0
        self._exit = asyncio.Event()

    def buffered_bytes(self) -> int:
        """Returns how much was written to clients' connections and not yet taken."""
        return sum([c.transport.get_write_buffer_size() for c in self.server_state.connections])

    def exit(self) -> None:
        """Refuses new work and lets running requests end."""
        self.should_exit = True
        self._exit.set()

    def hurry(self) -> None:
        """Ends the patience with what is still running."""
        self._drain_s = self._patient_until_s = 0.0
        self.exit()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % 864_000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._exit.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, with a drain to the millisecond, and an end for those who outlast it."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        if not await self._is_idle_within(self._drain_s):
            for task in tuple(state.tasks):
                task.cancel()  # each tells its client
            await self._is_idle_within(FAREWELL_S)
            for connection in tuple(state.connections):
                connection.transport.abort()
        await self.lifespan.shutdown()

    async def _is_idle_within(self, limit_s: float) -> bool:
        """Tells all connections to end with their request. Returns whether they have, and all requests."""
        state, loop = self.server_state, asyncio.get_running_loop()
        self._patient_until_s = loop.time() + limit_s
        told = set(state.connections)
        for connection in told:
            connection.shutdown()
        while True:
            await asyncio.sleep(POLL_S)
            for connection in state.connections - told:  # accepted just before the listener was closed
                connection.shutdown()
                told.add(connection)
            idle = not state.connections and not state.tasks
            if idle or loop.time() >= self._patient_until_s:
                return idle


class RunningServer:
    """A server that accepts requests.

    Attributes:
        port: The port it listens on.
        admin_port: The port of ``admin.listen``, None without it.
        app: Its application.
    """

    def __init__(self, app: App, port: int, admin_port: int | None, servers: Sequence[_Server]) -> None:
        self.app = app
        self.port = port
        self.admin_port = admin_port
        self._servers = servers
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Begins to accept requests; returns when it does."""
        for server, listener in zip(self._servers, listeners, strict=True):
            task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
            self._tasks.append(task)
            while not server.started:
                if task.done():
                    await task
                    raise RuntimeError("the server ended while it started")
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Refuses new work, lets running requests end within ``shutdown.drain``, then ends them.

        The admin listener answers until that is done: the drain can be watched.
        """
        for server, task in zip(self._servers, self._tasks, strict=True):
            server.exit()
            await task

    def hurry(self) -> None:
        """Ends the drain of a ``stop`` that runs: what is still running ends now."""
        for server in self._servers:
            server.hurry()

    async def wait(self) -> None:
        """Returns when it has ended."""
        await asyncio.shield(self._tasks[0])


async def start(config: Config, access_out: BinaryIO | None = None, seat: Seat | None = None) -> RunningServer:
    """Starts serving; with a seat, as one of several workers.

    Raises:
        CannotListen: For ``listen`` or ``admin.listen``.
    """
    with contextlib.ExitStack() as opened:  # closed again, should it not come to serving
        listeners = [opened.enter_context(_listen("listen", config.listen, shared=seat is not None))]
        if config.admin.listen is not None:
            admin = _listen("admin.listen", config.admin.listen, shared=seat is not None)
            listeners.append(opened.enter_context(admin))
        app = App(config, access_out, seat)
        bounded = partial(
            RelayProtocol.configured,
            buffer_bytes=config.stream.buffer_bytes,
            header_bytes=config.limits_http.header_bytes,
            head_s=config.limits_http.read_s,
        )
        servers = [_server(app, config.shutdown.drain_s, http=bounded(refused=app.openai.refused), lifespan="on")]
        app.metrics.stream_buffer_bytes = servers[0].buffered_bytes
        app.metrics.client_connections = lambda: len(servers[0].server_state.connections)
        if config.admin.listen is not None:
            servers.append(_server(app.serve_admin, FAREWELL_S, http=bounded(), lifespan="off"))
        port, *admin_ports = (listener.getsockname()[1] for listener in listeners)
        running = RunningServer(app, port, admin_ports[0] if admin_ports else None, servers)
        await running.serve(listeners)
        opened.pop_all()
    return running


def _server(app: ASGIApp, drain_s: float, **options: Any) -> _Server:
    settings = uvicorn.Config(
        app,
        interface="asgi3",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # one layer less; nothing here reads the client's address
        timeout_keep_alive=CLIENT_IDLE_S,
        backlog=BACKLOG,
        **options,
    )
    return _Server(settings, drain_s)


def bind(key: str, address: str, *, shared: bool = False) -> socket.socket:
    """Returns a socket that is bound and does not listen.

    Args:
        key: The key of the configuration that names the address.
        address: HOST:PORT.
        shared: Whether others may bind it as well: the connections are dealt out to those who listen.

    Raises:
        CannotListen: It cannot be bound.
    """
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        find_dead_peer(bound, CLIENT_S)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise CannotListen(key, address, error) from error
    return bound


def _listen(key: str, address: str, *, shared: bool) -> socket.socket:
    listener = bind(key, address, shared=shared)
    try:
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise CannotListen(key, address, error) from error
    return listener
