"""One tick for every timer."""

from __future__ import annotations

import asyncio
import time

from gateway.deadlines import Deadlines
from tests.fakes.scripted import eventually


class Watched:
    def __init__(self, after_s: float, again: bool = False, fails: bool = False) -> None:
        self.due_s = time.perf_counter() + after_s
        self.called_s: list[float] = []
        self._again = again
        self._fails = fails

    def on_due(self, now_s: float) -> None:
        self.called_s.append(now_s)
        self.due_s = now_s if self._again else now_s + 3600.0
        if self._fails:
            raise RuntimeError("this one fails")


async def test_what_is_due_is_called_and_what_is_not_is_not() -> None:
    deadlines, soon, late = Deadlines(), Watched(0.0), Watched(3600.0)
    deadlines.add(soon)
    deadlines.add(late)
    await eventually(lambda: bool(soon.called_s))
    assert not late.called_s


async def test_it_is_never_called_early() -> None:
    deadlines, watched = Deadlines(), Watched(0.06)
    due_s = watched.due_s
    deadlines.add(watched)
    await eventually(lambda: bool(watched.called_s))
    assert watched.called_s[0] >= due_s


async def test_what_sets_itself_a_new_time_is_called_again() -> None:
    deadlines, watched = Deadlines(), Watched(0.0, again=True)
    deadlines.add(watched)
    await eventually(lambda: len(watched.called_s) >= 3)
    deadlines.discard(watched)


async def test_what_becomes_due_later_is_waited_for() -> None:
    deadlines, moved = Deadlines(), Watched(0.06)
    deadlines.add(moved)
    moved.due_s += 0.1
    due_s = moved.due_s
    await eventually(lambda: bool(moved.called_s))
    assert moved.called_s[0] >= due_s


async def test_what_becomes_due_earlier_is_called_earlier_once_added_again() -> None:
    deadlines, moved = Deadlines(), Watched(3600.0)
    deadlines.add(moved)
    moved.due_s = time.perf_counter()
    deadlines.add(moved)
    await eventually(lambda: bool(moved.called_s))
    assert len(moved.called_s) == 1


async def test_what_was_discarded_is_not_called() -> None:
    deadlines, gone, kept = Deadlines(), Watched(0.0), Watched(0.0)
    deadlines.add(gone)
    deadlines.add(kept)
    deadlines.discard(gone)
    deadlines.discard(gone)
    await eventually(lambda: bool(kept.called_s))
    assert not gone.called_s


async def test_it_starts_anew_after_everything_was_discarded() -> None:
    deadlines, first, second = Deadlines(), Watched(0.0), Watched(0.0)
    deadlines.add(first)
    await eventually(lambda: bool(first.called_s))
    deadlines.discard(first)
    await asyncio.sleep(0.12)  # two ticks without anything to watch: the stimulus
    deadlines.add(second)
    await eventually(lambda: bool(second.called_s))


async def test_one_that_fails_does_not_stop_the_others() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    deadlines, bad, good = Deadlines(), Watched(0.0, fails=True), Watched(0.12)
    deadlines.add(bad)
    deadlines.add(good)
    await eventually(lambda: bool(good.called_s))
