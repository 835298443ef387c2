"""Weir's application under an ASGI server that knows nothing of it: uvicorn with its own protocol classes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import uvicorn

from gateway.app import App
from gateway.config.file import parse
from tests.fakes.gateway import Logs, RunningGateway
from tests.fakes.patience import WAIT_S
from tests.fakes.scripted import eventually


class PlainGateway(RunningGateway):
    """One that serves without our protocol class.

    Attributes:
        app: The application, to be called without a server.
    """

    def __init__(self, port: int, logs: Logs, app: App) -> None:
        super().__init__(port, logs)
        self.app = app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def plain_asgi(config_text: str, protocol: str) -> AsyncGenerator[PlainGateway]:
    """Serves with uvicorn's ``httptools`` or ``h11`` protocol: the relay has no transport to write to."""
    logs = Logs(io.BytesIO(), [])
    app = App(parse(config_text, source="test", environ={}), logs.access_out)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
        )
        server = _Server(settings)
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        gateway = PlainGateway(listener.getsockname()[1], logs, app)
        try:
            await eventually(lambda: server.started or task.done())
            yield gateway
        finally:
            await gateway.aclose()
            server.should_exit = True
            async with asyncio.timeout(WAIT_S):
                await task
