"""CPU microseconds of one routing decision by predicted latency: the view, the query and the choice.

``python -m bench.routing.decision``; a loop that does nothing tells how fast the machine is at the time.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from policies.engine_speed import EngineSpeed, after_answer, after_first_output
from policies.routing.latency import Latency
from policies.types import Answered, EndpointSnapshot, FirstOutput, PoolView, RouteQuery

ROUNDS, TURNS = 9, 2000
SIZES = (8, 16, 64)


class Slot:
    """Keeps a snapshot as ``gateway.own_load.OwnLoad`` does."""

    __slots__ = ("seen",)

    def __init__(self, seen: EndpointSnapshot) -> None:
        self.seen = seen


def speed(chance: random.Random) -> EngineSpeed:
    known: EngineSpeed | None = None
    for turn in range(40):
        tokens = chance.randrange(100, 4000)
        sent_s = 1.0 * turn
        first_s = sent_s + 0.1 + 60e-6 * tokens
        known = after_first_output(known, FirstOutput(sent_s, first_s, tokens, tokens, 0, 0, 3000, 4))
        known = after_answer(known, Answered(sent_s, first_s + 2.0, first_s, tokens, 0, 200, 0.01))
    assert known is not None
    return known


def endpoints(count: int) -> list[Slot]:
    chance = random.Random(count)
    return [
        Slot(
            EndpointSnapshot(
                f"gpu-{i}",
                "healthy",
                chance.randrange(2, 20),
                pending=2,
                pending_tokens=chance.randrange(500, 6000),
                oldest_s=39.9,
                oldest_tokens=400,
                held_tokens=chance.randrange(5000, 60000),
                answers=40,
                learnt=speed(chance),
            )
        )
        for i in range(count)
    ]


def cpu_us(call: Callable[[], object], turns: int) -> float:
    """Returns the median over the rounds."""
    rounds: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(turns):
            call()
        rounds.append((time.process_time_ns() - began) / turns / 1000)
    return statistics.median(rounds)


def decision_us(count: int, holders: int) -> float:
    slots, policy = endpoints(count), Latency()
    cached = {f"gpu-{i * count // max(1, holders)}": 2048 + i for i in range(holders)}

    def decide() -> object:
        # as gateway/pool.py does it
        view = PoolView(time.perf_counter(), 1, tuple([slot.seen for slot in slots]), random.getrandbits(64))
        return policy.choose(view._replace(now_s=40.0), RouteQuery(prompt_tokens=2400, cached_tokens=cached))

    return cpu_us(decide, TURNS)


def learning_us() -> float:
    known = speed(random.Random(1))
    first = FirstOutput(50.0, 50.3, 1000, 600, 0, 0, 9000, 7)
    answer = Answered(50.0, 52.3, 50.3, 1000, 400, 200, 0.01)
    return cpu_us(lambda: after_answer(after_first_output(known, first), answer), TURNS)


def calibration_us() -> float:
    """Returns what a thousand additions cost."""

    def add() -> int:
        total = 0
        for i in range(1000):
            total += i
        return total

    return cpu_us(add, TURNS // 10)


def main() -> None:
    print(f"1,000 additions            {calibration_us():6.1f} us")
    for count in SIZES:
        for holders in (0, 3):
            print(f"{count:3d} endpoints, {holders} with prefix {decision_us(count, holders):6.1f} us")
    print(f"learning of one answer     {learning_us():6.1f} us")
    print(f"1,000 additions            {calibration_us():6.1f} us")


if __name__ == "__main__":
    main()
