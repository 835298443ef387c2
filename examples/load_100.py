"""Sends 100 completions, at most 20 at once, and prints latency and throughput.

Usage: python examples/load_100.py [--base-url URL] [--model NAME] [--requests N] [--concurrency N]
Needs aiohttp: pip install aiohttp
"""

import argparse
import asyncio
import math
import statistics
import time

import aiohttp


async def latency_s(
    session: aiohttp.ClientSession, turn: asyncio.Semaphore, url: str, body: dict[str, object]
) -> float:
    """Sends one request when its turn has come; returns the seconds from then to the end of the answer.

    Raises:
        aiohttp.ClientError: It failed, or its status is an error.
    """
    async with turn:
        begun_s = time.perf_counter()
        async with session.post(url, json=body, raise_for_status=True) as response:
            await response.read()
        return time.perf_counter() - begun_s


async def load(base_url: str, model: str, requests: int, concurrency: int) -> bool:
    """Prints what was measured. Returns whether every request succeeded."""
    url = f"{base_url.rstrip('/')}/completions"
    turn = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:
        begun_s = time.perf_counter()
        results = await asyncio.gather(
            *(
                latency_s(session, turn, url, {"model": model, "prompt": f"River number {number} is", "max_tokens": 20})
                for number in range(requests)
            ),
            return_exceptions=True,
        )
        took_s = time.perf_counter() - begun_s

    latencies_s = sorted(result for result in results if isinstance(result, float))
    failures = [result for result in results if isinstance(result, BaseException)]
    print(f"{len(latencies_s)} of {requests} requests succeeded in {took_s:.2f} s, {concurrency} at once")
    if latencies_s:
        p99_s = latencies_s[math.ceil(0.99 * len(latencies_s)) - 1]  # nearest rank
        print(f"mean latency {1000 * statistics.fmean(latencies_s):.1f} ms")
        print(f"P99 latency {1000 * p99_s:.1f} ms")
        print(f"{len(latencies_s) / took_s:.1f} requests/s")
    if failures:
        print(f"first failure: {failures[0]!r}")
    return not failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Send many completions at once and measure them.")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080/v1", help="Weir's address with /v1 (%(default)s)")
    parser.add_argument("--model", default="default", help="a model that it serves (%(default)s)")
    parser.add_argument("--requests", type=int, default=100, help="how many (%(default)s)")
    parser.add_argument("--concurrency", type=int, default=20, help="most at once (%(default)s)")
    arguments = parser.parse_args()
    succeeded = asyncio.run(load(arguments.base_url, arguments.model, arguments.requests, arguments.concurrency))
    return 0 if succeeded else 1


if __name__ == "__main__":
    raise SystemExit(main())
