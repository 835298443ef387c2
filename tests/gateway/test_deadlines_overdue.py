"""Timers that are late already, and timers that fail."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.deadlines import Deadlines
from tests.fakes.scripted import eventually


class Overdue:
    """Due so long ago, again and again; fails if told to.

    Attributes:
        calls: How often it was called.
    """

    def __init__(self, since_s: float, fails: bool = False) -> None:
        self.due_s = time.perf_counter() - since_s
        self.calls = 0
        self._fails = fails

    def on_due(self, now_s: float) -> None:
        self.calls += 1
        if self._fails:
            raise RuntimeError("this one fails")
        self.due_s = now_s


@pytest.mark.parametrize("since_s", [0.0, 0.05, 1.0, 3600.0, 1e9])
@pytest.mark.parametrize("idle", [True, False])
async def test_what_is_due_already_when_it_is_added_is_called(since_s: float, idle: bool) -> None:
    deadlines, other, watched = Deadlines(), Overdue(-3600.0), Overdue(since_s)
    if not idle:
        deadlines.add(other)
        await asyncio.sleep(0.12)  # two ticks: the stimulus
    deadlines.add(watched)
    await eventually(lambda: watched.calls >= 2)
    assert other.calls == 0
    deadlines.discard(watched)
    deadlines.discard(other)


async def test_one_that_fails_is_called_no_more_and_stops_none_of_its_tick() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(str(context)))
    deadlines = Deadlines()
    bad, good = [Overdue(1.0, fails=True) for _ in range(5)], [Overdue(1.0) for _ in range(5)]
    for pair in zip(bad, good, strict=True):
        for watched in pair:
            deadlines.add(watched)
    await eventually(lambda: all(watched.calls >= 3 for watched in good))
    assert [watched.calls for watched in bad] == [1] * 5
    assert told == []
    for watched in good:
        deadlines.discard(watched)


async def test_after_one_that_failed_alone_the_next_is_called() -> None:
    deadlines, bad, later = Deadlines(), Overdue(0.0, fails=True), Overdue(0.0)
    deadlines.add(bad)
    await eventually(lambda: bad.calls == 1)
    deadlines.add(later)
    await eventually(lambda: later.calls >= 1)
    deadlines.discard(later)
