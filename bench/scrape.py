"""What a scrape costs: CPU time in all, and the longest that it holds the event loop without a break.

    python -m bench.scrape [--endpoints 40] [--pools 10] [--runs 50]

Everything is in one process: each further worker is a file of numbers, filled as a worker fills it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from time import thread_time
from typing import Any

from adapters.types import Usage
from gateway.config import Config, EndpointConfig, MetricsConfig, PoolConfig
from gateway.fleet import Fleet
from gateway.flight import AttemptRecord, FlightRecord
from gateway.instruments.exposition import OPENMETRICS, TEXT, Format
from gateway.instruments.worker_numbers import Seat, WorkerNumbers
from gateway.metrics import Metrics
from gateway.probing.scrape import scrape

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def fleet(pools: int, endpoints: int) -> Fleet:
    """Returns a fleet of so many pools with so many endpoints in all."""
    each = endpoints // pools
    made = {
        f"model-{pool}": PoolConfig(
            endpoints=tuple(
                EndpointConfig(url="http://127.0.0.1:9", engine="vllm", id=f"gpu-{pool}-{n}") for n in range(each)
            )
        )
        for pool in range(pools)
    }
    return Fleet(Config(pools=made))


def fill(metrics: Metrics, of: Fleet) -> None:
    """Observes streams at every endpoint, some of them with an exported trace, and a failure of each pool."""
    for pool in of.pools.values():
        for n, endpoint in enumerate(pool.endpoints):
            for step in range(1, 20):
                took_s = 0.002 * step**2
                attempt = AttemptRecord(
                    endpoint, "why", 10.1, connected_s=10.2, sent_s=10.2, first_output_s=10.2 + took_s, ended_s=14.0,
                    outcome="ok",
                )  # fmt: skip
                flown = FlightRecord(
                    "id", "POST", "/v1/chat/completions", 10.0, 1.7e9, [attempt], "chat", pool.name, pool.name, True,
                    body_read_s=10.1, admitted_s=10.1, first_output_s=10.2 + took_s, last_output_s=13.9,
                    longest_gap_s=took_s, usage=Usage(100, 50), outcome="ok", done_s=14.0, trace_id=TRACE_ID,
                    keep_reason="sampled" if step % 2 else None,
                )  # fmt: skip
                metrics.endpoint(pool.name, pool.name, endpoint).gaps.observe(took_s)
                metrics.observe((flown,))
            if n == 0:
                metrics.observe(
                    (FlightRecord("id", "POST", "/", 10.0, 1.7e9, [], "chat", pool.name, pool.name, outcome="timeout"),)
                )
    metrics.publish()


def held(answer: Coroutine[Any, Any, bytes]) -> tuple[bytes, list[float]]:
    """Drives a scrape as the loop would: returns it, and the CPU time of each time that it held the loop."""
    holds_s = list[float]()
    while True:
        began_s = thread_time()
        try:
            answer.send(None)
        except StopIteration as done:
            holds_s.append(thread_time() - began_s)
            return done.value, holds_s
        holds_s.append(thread_time() - began_s)


def measure(metrics: Metrics, format: Format, *, gzip: bool, runs: int) -> str:
    """Returns a row of the table."""
    runs_s: list[tuple[float, float]] = []
    body = b""
    for _ in range(runs):
        body, holds_s = held(scrape(metrics, format, gzip=gzip))
        runs_s.append((sum(holds_s), max(holds_s)))
    cpu_s, longest_s = (sorted(column)[runs // 2] for column in zip(*runs_s, strict=True))
    worst_s = max(longest for _, longest in runs_s)
    return f"{len(body) / 1e3:.0f} | {cpu_s * 1e3:.2f} | {longest_s * 1e3:.2f} | {worst_s * 1e3:.2f}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=40)
    parser.add_argument("--pools", type=int, default=10)
    parser.add_argument("--runs", type=int, default=50)
    args = parser.parse_args()
    gc.disable()  # as Weir does while it serves
    print("| workers | form | kB | CPU, ms | longest hold, ms: median | worst |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, 4):
            of = fleet(args.pools, args.endpoints)
            seats = [Seat(number, workers, Path(folder)) for number in range(workers)]
            all_metrics = [
                Metrics(of, options=MetricsConfig(), workers=WorkerNumbers(seat) if workers > 1 else None)
                for seat in seats
            ]
            for metrics in all_metrics:
                fill(metrics, of)
            first = all_metrics[0]
            lines = first.render().splitlines()
            histograms = sum(line.partition(" ")[0].partition("{")[0].endswith("_count") for line in lines)
            print(f"<!-- {workers} worker(s): {histograms} histograms, {len(lines)} lines -->")
            for name, format, gzip in (
                ("text", TEXT, False),
                ("text, gzip", TEXT, True),
                ("OpenMetrics", OPENMETRICS, False),
                ("OpenMetrics, gzip", OPENMETRICS, True),
            ):
                print(f"| {workers} | {name} | {measure(first, format, gzip=gzip, runs=args.runs)} |")
            await of.aclose()


if __name__ == "__main__":
    asyncio.run(main())
