"""A real Prometheus that scrapes, a real Alertmanager, and somebody whom it tells."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from tests.fakes.patience import WAIT_S
from tests.fakes.scripted import unused_port

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
ALERTMANAGER = shutil.which("prometheus-alertmanager")

needs_prometheus = [
    pytest.mark.prometheus,
    pytest.mark.skipif(
        None in (PROMETHEUS, PROMTOOL, ALERTMANAGER),
        reason="Prometheus is missing; on Debian: apt-get install prometheus prometheus-alertmanager",
    ),
]

SEEN_S = 30.0
"""For a scrape, a rule or an alert to have its effect."""


class Prometheus:
    """One that runs.

    Attributes:
        url: Its own.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx2.AsyncClient(base_url=url, timeout=WAIT_S)

    async def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Returns the value of each series that the expression gives now."""
        found = await self._data("/api/v1/query", query=expression)
        return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in found["result"]}

    async def value(self, expression: str, wanted: Callable[[float], bool]) -> float:
        """Waits until the one series of this expression has such a value."""
        async with asyncio.timeout(SEEN_S):
            while True:
                found = list((await self.query(expression)).values())
                if len(found) == 1 and wanted(found[0]):
                    return found[0]
                await asyncio.sleep(0.05)

    async def exemplars(self, series: str, count: int) -> list[dict[str, Any]]:
        """Waits until so many exemplars of these series are stored."""
        async with asyncio.timeout(SEEN_S):
            while True:
                found = await self._data("/api/v1/query_exemplars", query=series, start="0", end="9999999999")
                stored = [exemplar for one in found for exemplar in one["exemplars"]]
                if len(stored) >= count:
                    return stored
                await asyncio.sleep(0.05)

    async def _data(self, path: str, **parameters: str) -> Any:
        reply = await self._client.get(f"{path}?{urlencode(parameters)}")
        told = reply.json()
        assert told["status"] == "success", told
        return told["data"]

    async def aclose(self) -> None:
        await self._client.aclose()


@asynccontextmanager
async def running_prometheus(
    folder: Path, weir_port: int, *, rules: str | None = None, alertmanager_url: str | None = None
) -> AsyncGenerator[Prometheus]:
    """Starts one that scrapes Weir every second."""
    assert PROMETHEUS is not None
    port = unused_port()
    settings: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "200ms"},
        "scrape_configs": [
            {"job_name": "weir", "static_configs": [{"targets": [f"127.0.0.1:{weir_port}"]}]},
        ],
    }
    if rules is not None:
        (folder / "rules.yml").write_text(rules)
        settings["rule_files"] = ["rules.yml"]
    if alertmanager_url is not None:
        target = alertmanager_url.removeprefix("http://")
        settings["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [target]}]}]}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    command = (
        PROMETHEUS,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    )
    async with _running(command, folder, "prometheus", f"http://127.0.0.1:{port}"):
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        try:
            yield prometheus
        finally:
            await prometheus.aclose()


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
    async with _running(command, folder, "alertmanager", url):
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


@asynccontextmanager
async def _running(command: tuple[str, ...], folder: Path, name: str, url: str) -> AsyncGenerator[None]:
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        async with httpx2.AsyncClient() as client, asyncio.timeout(SEEN_S):
            while not await _is_ready(client, url):
                assert process.returncode is None, log.read_text()
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(WAIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _is_ready(client: httpx2.AsyncClient, url: str) -> bool:
    """Whether it serves; waits a moment if not."""
    try:
        ready = (await client.get(f"{url}/-/ready")).status_code == 200
    except httpx2.TransportError:
        ready = False
    if not ready:
        await asyncio.sleep(0.02)
    return ready
