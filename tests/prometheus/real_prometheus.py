"""What a real Prometheus comes to see, a real Alertmanager, and somebody whom it tells."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deploy.local_prometheus import MISSING, PROMETHEUS, LocalPrometheus, running_prometheus
from tests.fakes.program import stopped_at_the_end
from tests.fakes.scripted import unused_port

PROMTOOL = shutil.which("promtool")
ALERTMANAGER = shutil.which("prometheus-alertmanager")

needs_prometheus = [
    pytest.mark.prometheus,
    pytest.mark.skipif(
        None in (PROMETHEUS, PROMTOOL, ALERTMANAGER),
        reason=MISSING,
    ),
]

SEEN_S = 30.0
"""For a scrape, a rule or an alert to have its effect."""


async def seen(prometheus: LocalPrometheus, expression: str, wanted: Callable[[float], bool]) -> float:
    """Waits until the one series of this expression has such a value."""
    async with asyncio.timeout(SEEN_S):
        while True:
            found = [value for series in await prometheus.instant(expression) for _, value in series.points]
            if len(found) == 1 and wanted(found[0]):
                return found[0]
            await asyncio.sleep(0.05)


async def exemplars(prometheus: LocalPrometheus, selector: str, count: int) -> list[Any]:
    """Waits until so many exemplars of these series are stored."""
    async with asyncio.timeout(SEEN_S):
        while True:
            if len(stored := await prometheus.exemplars(selector)) >= count:
                return stored
            await asyncio.sleep(0.05)


@asynccontextmanager
async def watching(
    folder: Path, weir_port: int, *, rules: str | None = None, alertmanager_url: str | None = None
) -> AsyncGenerator[LocalPrometheus]:
    """A Prometheus that scrapes Weir every second."""
    files = [folder / "rules.yml"] if rules is not None else []
    for file in files:
        file.write_text(rules or "")
    told = [alertmanager_url.removeprefix("http://")] if alertmanager_url is not None else []
    targets = {"weir": [(f"127.0.0.1:{weir_port}", dict[str, str]())]}
    async with running_prometheus(folder, targets, 1.0, files, told) as prometheus:
        yield prometheus


@asynccontextmanager
async def running_alertmanager(folder: Path, webhook_url: str) -> AsyncGenerator[str]:
    """Starts one that tells the webhook of every alert at once; gives its URL."""
    assert ALERTMANAGER is not None
    url = f"http://127.0.0.1:{unused_port()}"
    route = {"receiver": "test", "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    receiver = {"name": "test", "webhook_configs": [{"url": webhook_url, "send_resolved": True}]}
    (folder / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": [receiver]}))
    command = (
        ALERTMANAGER,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alerts'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    )
    log = folder / "alertmanager.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out
        )
    async with stopped_at_the_end(process):
        async with httpx2.AsyncClient() as client, asyncio.timeout(SEEN_S):
            while not await _is_ready(client, url):
                assert process.returncode is None, log.read_text()
        yield url


class Webhook:
    """Takes what Alertmanager posts.

    Attributes:
        url: Where.
        told: The alerts, in the order in which they came.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def next(self) -> dict[str, Any]:
        """Waits for the next alert."""
        async with asyncio.timeout(SEEN_S):
            return await self.told.get()


@asynccontextmanager
async def webhook() -> AsyncGenerator[Webhook]:
    port = unused_port()
    hook = Webhook(port)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        (length,) = [line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:")]
        for alert in json.loads(await reader.readexactly(int(length)))["alerts"]:
            hook.told.put_nowait(alert)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        yield hook


async def promtool(*arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    """Runs it; returns its status and all that it says."""
    assert PROMTOOL is not None
    process = await asyncio.create_subprocess_exec(
        PROMTOOL,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SEEN_S):
        said, _ = await process.communicate(stdin)
    return process.returncode or 0, said.decode()


async def _is_ready(client: httpx2.AsyncClient, url: str) -> bool:
    """Whether it serves; waits a moment if not."""
    try:
        ready = (await client.get(f"{url}/-/ready")).status_code == 200
    except httpx2.TransportError:
        ready = False
    if not ready:
        await asyncio.sleep(0.02)
    return ready
