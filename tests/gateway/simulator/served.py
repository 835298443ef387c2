"""A simulated engine on a real socket, for as long as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from uvicorn.server import ServerState

from gateway.simulator.closing_protocol import ClosingProtocol
from gateway.simulator.server import Settings, SimulatedEngine
from tests.fakes.patience import WAIT_S


@dataclass(frozen=True, slots=True)
class Served:
    """An engine and its address."""

    app: SimulatedEngine
    url: str
    port: int
    http: httpx2.AsyncClient

    async def metric(self, name: str, **labels: str) -> float:
        """Returns one sample of /metrics; ``labels`` need only tell it from others."""
        text = (await self.http.get("/metrics")).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items():
                    return sample.value
        raise AssertionError(f"no sample {name} {labels} in\n{text}")

    async def until(self, name: str, value: float) -> None:
        """Waits until a sample has that value."""
        await eventually(lambda: self._is(name, value))

    async def until_open(self, requests: int) -> None:
        """Waits until so many requests run or wait, in whatever dialect."""

        async def holds() -> bool:
            return self.app.open_requests == requests

        await eventually(holds)

    async def _is(self, name: str, value: float) -> bool:
        return await self.metric(name) == value


async def eventually(holds: Callable[[], Awaitable[bool]], within_s: float = WAIT_S) -> None:
    """Polls until a condition holds; fails after ``within_s``."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - the condition is another process's or connection's state
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serve(settings: Settings) -> AsyncGenerator[Served]:
    """Serves an engine in this event loop; ends its answers and connections when the block ends."""
    app, state = SimulatedEngine(settings), ServerState()
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, server_header=False)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ClosingProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    port = int(server.sockets[0].getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    try:
        # No certificates are loaded, which takes ten times as long as all else here: the engine speaks plain HTTP.
        async with httpx2.AsyncClient(base_url=url, timeout=WAIT_S, verify=False) as http:
            yield Served(app, url, port, http)
    finally:
        app.abort_all()
        server.close()
        for connection in list(state.connections):
            connection.shutdown()
        await asyncio.gather(*state.tasks)
        await server.wait_closed()
