"""How often a delay of 300 ms is named by the verdict, with a hundred requests for each kind of delay.

    python bench/attribution.py [--requests 100] [--at-once 5]

Real requests, through a real gateway, to scripted engines: `tests/fakes/delays.py`. The last column is the sum of a
request's parts as a share of its wall time, where it is furthest from the whole.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fakes.delays import KINDS, WORDS, Explained, held_up

REQUIRED_RATIO = 0.95


async def told_of(kind: str, requests: int, at_once: int) -> list[Explained]:
    """Sends the requests; returns those that were held up."""
    room = asyncio.Semaphore(at_once)
    async with held_up(kind) as explained:

        async def one(name: str) -> Explained:
            async with room:
                return await explained(name)

        told: list[Explained] = []
        while len(told) < requests:
            more = await asyncio.gather(*(one(f"r{len(told)}-{n}") for n in range(requests)))
            told += [one for one in more if KINDS[kind][0] != "retries" or len(one["attempts"]) > 1]
    return told[:requests]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=5)
    args = parser.parse_args()
    missed = 0
    print("| delay | phase | named | parts / wall time, worst |\n| --- | --- | ---: | ---: |")
    for kind, (phase, *_) in KINDS.items():
        told = await told_of(kind, args.requests, args.at_once)
        named = sum(WORDS[phase] in one["verdict"] for one in told)
        ratios = [sum(part["duration_s"] for part in one["phases"]) / one["duration_s"] for one in told]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        print(f"| {kind} | {phase} | {named} of {len(told)} | {worst:.1%} |", flush=True)
        missed += named < REQUIRED_RATIO * len(told)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
