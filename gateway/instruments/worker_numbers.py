"""The numbers of all workers: this one's own file, and what the files of the others say."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .number_file import ALIVE, CHUNK, DOUBLE_BYTES, PID, Entry, NumberFile, index_path, read_entries, values_path


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place among the others.

    Attributes:
        number: Its own, from 0 on.
        count: How many workers there are.
        folder: Where their numbers are.
    """

    number: int
    count: int
    folder: Path


class Living(NamedTuple):
    """A worker that lives."""

    number: int
    pid: int


class News(NamedTuple):
    """A series that another worker has begun.

    Attributes:
        slots: Its numbers.
        alive: One number: 1 while that worker lives, else 0.
    """

    entry: Entry
    slots: memoryview[float]
    alive: memoryview[float]


class WorkerNumbers:
    """What one worker knows of all.

    Attributes:
        own: This worker's file.
    """

    def __init__(self, seat: Seat) -> None:
        self.own = NumberFile(seat.folder, seat.number)
        self._seat = seat
        self._others = [_Other(seat.folder, n) for n in range(seat.count) if n != seat.number]

    def news(self) -> Iterator[News]:
        """Yields the series that others have begun since this was asked last."""
        for other in self._others:
            yield from other.news()

    def living(self) -> list[Living]:
        """Returns the workers that live, this one among them."""
        others = [other.living() for other in self._others]
        return sorted([Living(self._seat.number, os.getpid()), *(found for found in others if found is not None)])


class _Other:
    """Another worker's file, once it is there."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._index: int | None = None
        self._position = 0
        self._values = -1
        self._chunks: dict[int, memoryview[float]] = {}

    def news(self) -> Iterator[News]:
        if not self._is_open() or self._index is None:
            return
        self._position, entries = read_entries(self._index, self._position)
        alive = self._chunk(0)[ALIVE : ALIVE + 1]
        for entry in entries:
            chunk, slot = divmod(entry.first, CHUNK)
            yield News(entry, self._chunk(chunk)[slot : slot + entry.slots], alive)

    def living(self) -> Living | None:
        if not self._is_open():
            return None
        header = self._chunk(0)
        return Living(self._number, int(header[PID])) if header[ALIVE] else None

    def _is_open(self) -> bool:
        if self._index is None:
            try:
                self._index = os.open(index_path(self._folder, self._number), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # it has not begun yet
                return False
            # This file was made, and its first chunk, before the index
            self._values = os.open(values_path(self._folder, self._number), os.O_RDONLY | os.O_CLOEXEC)
        return True

    def _chunk(self, number: int) -> memoryview[float]:
        found = self._chunks.get(number)
        if found is None:
            size = CHUNK * DOUBLE_BYTES
            mapped = mmap.mmap(self._values, size, offset=number * size, access=mmap.ACCESS_READ)
            found = self._chunks[number] = memoryview(mapped).cast("d")
        return found
