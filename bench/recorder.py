"""Whether the flight recorder delays the event loop: lateness of a 1 ms ticker as requests end, with a file or without.

python -m bench.recorder [--per-second 2000] [--seconds 15] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import uvloop

from bench.telemetry import closed
from gateway.app import App
from gateway.config import Config

TICK_S = 0.001
SLICE_S = 0.005


async def late_ms(path: str, per_second: int, seconds: float) -> tuple[float, float, int]:
    """Returns the p99 and the greatest lateness in milliseconds, and how many records were lost."""
    pools = {"m": {"endpoints": [{"url": "http://127.0.0.1:9", "engine": "vllm"}]}}
    app = App(Config.model_validate({"pools": pools, "recorder": {"path": path}}))
    app.recorder.start()
    late_s: list[float] = []
    ending = asyncio.ensure_future(_end_requests(app, per_second, seconds))
    while not ending.done():
        due_s = perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        late_s.append(perf_counter() - due_s)
    await ending
    await asyncio.to_thread(app.recorder.stop)
    await app.fleet.aclose()
    late_s.sort()
    return late_s[int(0.99 * len(late_s))] * 1e3, late_s[-1] * 1e3, app.recorder.dropped


async def _end_requests(app: App, per_second: int, seconds: float) -> None:
    begun_s = perf_counter()
    ended = 0
    while (passed_s := perf_counter() - begun_s) < seconds:
        for number in range(ended, int(passed_s * per_second)):
            record = closed(app, number)
            record.done_s = record.received_s + 3.3
            app.recorder.observe((record,))
            ended = number + 1
        await asyncio.sleep(SLICE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-second", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    gc.disable()  # as `weir serve` does
    found: dict[str, list[tuple[float, float, int]]] = {"memory": [], "file": []}
    for _ in range(args.rounds):
        for kind, rounds in found.items():
            with tempfile.TemporaryDirectory() as folder:
                path = kind if kind == "memory" else str(Path(folder, "flights.sqlite"))
                rounds.append(uvloop.run(late_ms(path, args.per_second, args.seconds)))
    print("| records in | late ms, p99 | late ms, most | lost |\n| --- | ---: | ---: | ---: |")
    for kind, rounds in found.items():
        p99_ms, most_ms, lost = (median(column) for column in zip(*rounds, strict=True))
        print(f"| {kind} | {p99_ms:.2f} | {most_ms:.2f} | {lost:.0f} |")


if __name__ == "__main__":
    main()
