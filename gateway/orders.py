"""What the operator says of endpoints, and how all workers hear it: a file in their folder holds the last word on each.

Whoever is told writes it there, and the others look twice a second; a worker that takes a dead one's place looks before
it serves. So an order outlives workers, and ends with Weir.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import orjson

from .fleet import Fleet

PERIOD_S = 0.5
Word = Literal["drain", "readmit"]
_Told = dict[str, tuple[int, Word]]


class Orders:
    """Gives orders, and carries out those that other workers were given.

    Args:
        fleet: The endpoints.
        folder: Of all workers; None if this is the only process.
    """

    def __init__(self, fleet: Fleet, folder: Path | None) -> None:
        self._fleet = fleet
        self._folder = folder
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None

    def give(self, id: str, word: Word) -> None:
        """Carries an order out here, and lets the other workers know of it.

        Args:
            id: Of an endpoint that exists.
            word: What to do with it.

        Raises:
            OSError: They cannot be told; then nothing is done here either.
        """
        if self._folder is not None:
            with _alone(self._folder):
                told = _read(self._folder)
                told[id] = (max((number for number, _ in told.values()), default=0) + 1, word)
                _write(self._folder, told)
            self._follow()
        else:
            self._carry_out(id, word)

    def start(self) -> None:
        """Follows what others were told, now and from now on."""
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self.start)
        self._follow()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _follow(self) -> None:
        told = _read(self._folder) if self._folder is not None else {}
        news: list[tuple[int, str, Word]] = sorted(
            (number, id, word) for id, (number, word) in told.items() if number > self._seen
        )
        for number, id, word in news:
            self._seen = number
            self._carry_out(id, word)

    def _carry_out(self, id: str, word: Word) -> None:
        found = self._fleet.endpoint(id)
        assert found is not None  # all workers have the same configuration
        pool, endpoint = found
        if word == "drain":
            pool.drain(endpoint)
        else:
            pool.readmit(endpoint)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Keeps other workers from writing meanwhile; none holds this for longer than it takes to write a small file."""
    lock = os.open(folder / "weir-drains.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read(folder: Path) -> _Told:
    try:
        written = (folder / "weir-drains.json").read_bytes()
    except FileNotFoundError:  # nothing was said yet
        return {}
    told: dict[str, tuple[int, Word]] = {id: (number, word) for id, (number, word) in orjson.loads(written).items()}
    return told


def _write(folder: Path, told: _Told) -> None:
    made = folder / "weir-drains.new"
    made.write_bytes(orjson.dumps(told))
    made.replace(folder / "weir-drains.json")  # a reader sees all of the old or all of the new
