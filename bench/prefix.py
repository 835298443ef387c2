"""What a whole routing decision costs: reading the prompt, looking its blocks up, a choice, noting what was sent.

python -m bench.prefix [--endpoints 64] [--seconds 1.0]

Times are of this thread's CPU, the best of many rounds; a loop that does nothing tells how fast the machine is at the
time. The choice is the default policy's, by predicted latency, and the view that it is made from. A body above 256 KiB
is read in a thread; the last lines show how long the event loop is held meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from random import getrandbits
from time import perf_counter, thread_time

from adapters.bodies import read_object
from adapters.capabilities import needed
from adapters.types import GatewayRequest
from gateway.prompts import OFF_LOOP_BYTES, Prompts, read_prompt
from policies.routing.latency import Latency
from policies.types import PoolView

from .routing.decision import calibration_us
from .routing.decision import endpoints as learnt_endpoints

WORDS = "The weir holds the river back, and lets it go where it will. "
SIZES_BYTES = (8_192, 18_432, 1_048_576)
MEMORY_BYTES = 33_554_432
TICK_S = 0.0002


def request(size_bytes: int) -> GatewayRequest:
    text = (WORDS * (size_bytes // len(WORDS) + 1))[: size_bytes - 180]
    messages = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": text}]
    raw = json.dumps({"model": "m", "messages": messages, "stream": True, "temperature": 0.7}).encode()
    return GatewayRequest("r", "chat", "/v1/chat/completions", "POST", "m", True, raw, read_object(raw), 0)


def best_us(step: Callable[[], object], seconds: float) -> float:
    """The least CPU time of a step, over rounds of at least 1 ms each."""
    count, until_s, best_s = 1, perf_counter() + seconds, float("inf")
    while perf_counter() < until_s:
        began_s = thread_time()
        for _ in range(count):
            step()
        took_s = thread_time() - began_s
        if took_s < 0.001:
            count *= 2
        else:
            best_s = min(best_s, took_s / count)
    return best_s * 1e6


def measure(size_bytes: int, endpoints: int, seconds: float, *, everywhere: bool) -> tuple[float, ...]:
    """Returns microseconds of reading, looking up, choosing and noting; one endpoint knows the prompt, or all do."""
    slots = learnt_endpoints(endpoints)
    names = [slot.seen.endpoint_id for slot in slots]
    prompts, asked = Prompts(names, MEMORY_BYTES), request(size_bytes)
    prefixes = prompts.prefixes
    assert prefixes is not None
    for other in range(prefixes.most_blocks // 8):
        prefixes.sent([hash((other, block)) for block in range(8)], names[other % endpoints])
    needs = needed(asked)
    prompt = read_prompt(asked, needs, prefixes=True)
    for name in names if everywhere else names[:1]:
        prompts.sent(prompt, name)
    policy = Latency()
    _, query = prompts.known(prompt, needs)

    def choose() -> object:
        view = PoolView(40.0, 1, tuple([slot.seen for slot in slots]), getrandbits(64))  # as gateway/pool.py does it
        return policy.choose(view, query)

    read_us = best_us(lambda: read_prompt(asked, needs, prefixes=True), seconds)
    find_us = best_us(lambda: prompts.known(prompt, needs), seconds)
    choose_us = best_us(choose, seconds)
    note_us = best_us(lambda: prompts.sent(prompt, names[0]), seconds)
    return read_us, find_us, choose_us, note_us


async def held_ms(size_bytes: int, rounds: int) -> float:
    """The longest that the event loop was held while a prompt was read, over the rounds' median."""
    prompts, asked = Prompts(["a"], MEMORY_BYTES), request(size_bytes)
    needs, worst_s = needed(asked), list[float]()
    for _ in range(rounds):
        reading, late_s = asyncio.ensure_future(prompts.read(asked, needs)), 0.0
        while not reading.done():
            began_s = perf_counter()
            await asyncio.sleep(TICK_S)
            late_s = max(late_s, perf_counter() - began_s - TICK_S)
        worst_s.append(late_s)
    return sorted(worst_s)[len(worst_s) // 2] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    asked = parser.parse_args()
    print(f"1,000 additions {calibration_us():.1f} us")
    print(f"{'prompt':>9} {'known at':>8} {'read':>8} {'look up':>8} {'choose':>8} {'note':>8} {'all':>8}  us of CPU")
    for size_bytes in SIZES_BYTES:
        for everywhere in (False, True):
            parts = measure(size_bytes, asked.endpoints, asked.seconds, everywhere=everywhere)
            where = "all" if everywhere else "one"
            print(f"{size_bytes:9} {where:>8} " + " ".join(f"{us:8.1f}" for us in (*parts, sum(parts))))
    for size_bytes in (OFF_LOOP_BYTES - 4096, 1_048_576, 16_777_216):
        print(f"{size_bytes:9} bytes hold the event loop {asyncio.run(held_ms(size_bytes, 15)):.2f} ms")


if __name__ == "__main__":
    main()
