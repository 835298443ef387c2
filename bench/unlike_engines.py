"""Routing between two real engines of unlike speed: time to the first token by policy, under requests at random times.

    python -m bench.unlike_engines [--requests 80] [--rate 0.4] [--policies round_robin,least_in_flight,latency]

Two llama.cpp servers with the demo's model, one with a single thread and one with two, behind one gateway after the
other. Each policy gets prompts of the same lengths at the same times, but other words: an engine that remembers the
prompts of the policy before would answer sooner. The first requests, by which `latency` learns, count too. Needs the
demo's engine (`make demo`), and takes as long as the requests come.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx2
import uvloop

from gateway import server
from gateway.config import Config
from gateway.demo.engine_process import EngineProcess
from gateway.demo.installation import NotInstalled, find_model
from gateway.demo.readiness import until_healthy

SLOTS = 4
START_S = 60.0
ANSWER_TOKENS = (4, 32)
PROMPT_WORDS = (10, 150)
WORDS = (
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dog",
    "while",
    "two",
    "old",
    "owls",
    "look",
    "on",
    "and",
    "count",
)


class Asked:
    """One request: when it comes, and what it asks.

    Attributes:
        at_s: Since the beginning.
        body: Without the model.
    """

    def __init__(self, at_s: float, chance: random.Random, words: random.Random) -> None:
        self.at_s = at_s
        text = " ".join(words.choices(WORDS, k=chance.randint(*PROMPT_WORDS)))
        self.body: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": chance.randint(*ANSWER_TOKENS),
            "temperature": 0,
            "stream": True,
        }


def arrivals(requests: int, rate: float, seed: int, policy: str) -> list[Asked]:
    """Poisson; the words are the policy's own."""
    chance, words = random.Random(seed), random.Random(f"{seed} {policy}")
    at_s, made = 0.0, list[Asked]()
    for _ in range(requests):
        at_s += chance.expovariate(rate)
        made.append(Asked(at_s, chance, words))
    return made


async def ask(client: httpx2.AsyncClient, url: str, asked: Asked) -> tuple[float, str]:
    """Returns seconds to the first token, and the endpoint."""
    began_s, first_s = perf_counter(), None
    async with client.stream("POST", f"{url}/v1/chat/completions", json={"model": "m", **asked.body}) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if first_s is None and line.startswith("data: {"):
                delta = json.loads(line[6:])["choices"][0]["delta"]
                if delta.get("content"):
                    first_s = perf_counter() - began_s
        assert first_s is not None
        return first_s, response.headers["x-weir-endpoint"]


async def judged(policy: str, urls: list[str], asked: list[Asked]) -> tuple[list[float], Counter[str]]:
    """Returns the times to the first token, rising, and who served how many."""
    endpoints = [{"id": f"threads-{n}", "url": url, "engine": "llamacpp"} for n, url in enumerate(urls, start=1)]
    pool = {"endpoints": endpoints, "routing": {"policy": policy}}
    options = {
        "listen": "127.0.0.1:0",
        "pools": {"m": pool},
        "recorder": {"path": "memory"},
        "stream": {"keepalive": "1h"},  # it would send the head before an endpoint is known
    }
    with io.BytesIO() as nowhere:
        weir = await server.start(Config.model_validate(options), nowhere)
        try:
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(timeout=600, limits=limits, trust_env=False) as client:
                url, tasks, began_s = f"http://127.0.0.1:{weir.port}", list[asyncio.Task[tuple[float, str]]](), 0.0
                known = [e for pool in weir.app.fleet.pools.values() for e in pool.endpoints.values()]
                while any(e.facts.facts.slots is None for e in known):  # noqa: ASYNC110  a probe tells nobody
                    await asyncio.sleep(0.05)
                began_s = perf_counter()
                for one in asked:
                    await asyncio.sleep(max(began_s + one.at_s - perf_counter(), 0))
                    tasks.append(asyncio.create_task(ask(client, url, one)))
                done = await asyncio.gather(*tasks)
        finally:
            await weir.stop()
    return sorted(first_s for first_s, _ in done), Counter(endpoint for _, endpoint in done)


def quantile(rising: list[float], share: float) -> float:
    return rising[round(share * (len(rising) - 1))]


async def run(args: argparse.Namespace) -> None:
    model = find_model()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = [
            stack.enter_context(
                EngineProcess(
                    f"threads-{threads}",
                    "gateway.demo.llamacpp_server",
                    ("--model", str(model), "--alias", "m", "--slots", str(SLOTS), "--context", "8192",
                     "--threads", str(threads)),
                    folder / f"{threads}.log",
                )
            )
            for threads in (1, 2)
        ]  # fmt: skip
        urls = [await until_healthy(process, START_S) for process in processes]
        print("| policy | TTFT p50 s | p90 s | p99 s | served by one thread |\n| --- | ---: | ---: | ---: | ---: |")
        for policy in args.policies.split(","):
            asked = arrivals(args.requests, args.rate, args.seed, policy)
            rising, served = await judged(policy, urls, asked)
            figures = " | ".join(f"{quantile(rising, share):.2f}" for share in (0.5, 0.9, 0.99))
            print(f"| {policy} | {figures} | {served['threads-1'] / len(rising):.0%} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--rate", type=float, default=0.4, help="requests a second (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", default="round_robin,least_in_flight,latency")
    args = parser.parse_args()
    try:
        uvloop.run(run(args))
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
