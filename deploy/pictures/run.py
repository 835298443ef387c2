"""A real run to draw: two simulated engines behind a Weir, calm, then more than they can take, then calm again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import httpx2

from deploy.local_prometheus import LocalPrometheus, Targets, running_prometheus
from gateway.demo.engine_process import EngineProcess

from .panel import Span

SCRAPE_S = 0.25
STEP_S = 0.5
WINDOW_S = 2.0
START_S = 30.0
PHASES = ((6.0, 6.0), (7.0, 18.0), (11.0, 4.0))
"""Seconds, and requests a second; the two engines can take about 12."""
PATIENCE_S = (1.2, 6.0)
"""A client that has no token by some time in between leaves."""
WARM_UP = ((0.5, 8.0),)
CHAT = "/v1/chat/completions"
FLIGHTS = "flights.sqlite"
ENGINE = (
    *("--port", "0", "--dialect", "sglang", "--model", "llama-3-8b", "--slots", "8"),
    *("--ttft", "60ms", "--itl", "20ms", "--prefill-rate", "3000", "--jitter", "0.4"),
)


@asynccontextmanager
async def recorded(folder: Path) -> AsyncGenerator[tuple[LocalPrometheus, Span]]:
    """Runs it, and hands out the Prometheus that watched; the span leaves out the start."""
    async with AsyncExitStack() as stack:
        engines = [
            stack.enter_context(
                EngineProcess(
                    f"engine {n}", "gateway.demo.simulated_engine", (*ENGINE, "--seed", str(n)), folder / f"{n}.log"
                )
            )
            for n in range(2)
        ]
        urls = [await _address(engine) for engine in engines]
        config = folder / "weir.json"
        config.write_text(_config(urls, folder / FLIGHTS))
        weir = stack.enter_context(EngineProcess("weir", "gateway", ("serve", "-c", str(config)), folder / "weir.log"))
        url = await _address(weir)
        targets: Targets = {
            "weir": [(url.removeprefix("http://"), {})],
            "engines": [(one.removeprefix("http://"), {"endpoint": f"gpu-{n}"}) for n, one in enumerate(urls)],
        }
        data = folder / "prometheus"
        data.mkdir()
        prometheus = await stack.enter_async_context(running_prometheus(data, targets, SCRAPE_S))
        await _ask(url, WARM_UP)
        await asyncio.sleep(WINDOW_S)  # so that the first rate has something to look back at
        begin_unix_s = time.time()
        await _ask(url, PHASES)
        yield prometheus, Span(begin_unix_s, time.time(), STEP_S, WINDOW_S)


def _config(urls: list[str], flights: Path) -> str:
    endpoints = [{"id": f"gpu-{n}", "url": url, "engine": "sglang"} for n, url in enumerate(urls)]
    pools = {"llama-3-8b": {"endpoints": endpoints}}
    return json.dumps({"listen": "127.0.0.1:0", "recorder": {"path": str(flights)}, "pools": pools})


async def _address(process: EngineProcess) -> str:
    async with asyncio.timeout(START_S):
        while (url := process.url) is None:
            if process.exit_status is not None:
                raise process.failed("did not start")
            await asyncio.sleep(0.02)
    return url


async def _ask(url: str, phases: Sequence[tuple[float, float]]) -> None:
    """Sends the requests of all phases at random times, and waits for the answers."""
    chance = Random(7)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with (
        httpx2.AsyncClient(base_url=url, timeout=60, limits=limits, verify=False, trust_env=False) as http,
        asyncio.TaskGroup() as asking,
    ):
        for lasts_s, per_s in phases:
            until_s = time.monotonic() + lasts_s
            while time.monotonic() < until_s:
                prompt = "water " * int(chance.paretovariate(1.1) * 40)
                asking.create_task(_one(http, prompt[:12_000], int(chance.gauss(40, 12)), chance.uniform(*PATIENCE_S)))
                await asyncio.sleep(chance.expovariate(per_s))


async def _one(http: httpx2.AsyncClient, prompt: str, tokens: int, patience_s: float) -> None:
    body = {
        "model": "llama-3-8b",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max(tokens, 2),
        "stream": True,
    }
    try:
        async with asyncio.timeout(patience_s) as patience, http.stream("POST", CHAT, json=body) as answer:
            async for _ in answer.aiter_bytes():
                patience.reschedule(None)
    except TimeoutError:
        pass
