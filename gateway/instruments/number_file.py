"""A worker's numbers in a file that the other workers read: doubles, and an index of what they are.

``weir-worker-N.values`` is mapped into memory, chunk by chunk. Its first doubles are a header; then come the slots of
one series after the other. ``weir-worker-N.index`` gets one JSON line for each series, ``[family, [label values], first
slot, slots]``, written before the series counts anything. A worker that is killed leaves at worst half a line, which
nobody reads; the worker that takes its place goes on with the same file, so that counters never go down and files never
pile up.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import orjson

from .histogram import Counts, Exemplar, count

log = logging.getLogger("weir.metrics")

DOUBLE_BYTES = 8
HEADER = 8
ALIVE, PID = 0, 1
CHUNK = 16_384
"""Slots that are mapped at a time; the widest series has 141: 28 buckets, their sum, and 28 exemplars of 4 slots."""

_EXEMPLAR = struct.Struct("=16sdd")
_EXEMPLAR_SLOTS = _EXEMPLAR.size // DOUBLE_BYTES
_UNIX_S = struct.Struct("=d")
_UNIX_S_AT = _EXEMPLAR.size - _UNIX_S.size


class SharedNumber(ctypes.c_double):
    """One number in a mapped file; its ``value`` costs no call of Python's."""

    def add(self, n: float = 1.0) -> None:
        self.value += n


class SharedHistogram:
    """A distribution in a mapped file: counts, sum, and exemplars if there is room for them."""

    __slots__ = ("_exemplars", "_numbers", "_times", "counts", "edges", "sums")

    def __init__(self, edges: tuple[float, ...], slots: memoryview[float]) -> None:
        buckets = len(edges) + 1
        self.edges = edges
        self.counts: Counts = slots[:buckets]
        self.sums: Counts = slots[buckets : buckets + 1]
        self._numbers = slots[: buckets + 1]
        room = slots[buckets + 1 :]
        self._exemplars = room.cast("B") if len(room) else None
        self._times = room[_EXEMPLAR_SLOTS - 1 :: _EXEMPLAR_SLOTS]

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.sums[0] += value

    def observe_all(self, values: Sequence[float]) -> None:
        count(values, self.edges, self.counts)
        self.sums[0] += sum(values)

    def observe_n(self, value: float, n: int) -> None:
        self.counts[bisect_left(self.edges, value)] += n
        self.sums[0] += value * n

    def numbers(self) -> list[float]:
        """Returns the counts and, last, the sum."""
        return cast("list[float]", self._numbers.tolist())

    def exemplify(self, exemplar: Exemplar) -> None:
        assert self._exemplars is not None
        at = bisect_left(self.edges, exemplar.value) * _EXEMPLAR.size
        # Its time is written last and read on both sides of the rest: whoever reads amid this takes no mixture of two
        _EXEMPLAR.pack_into(self._exemplars, at, bytes.fromhex(exemplar.trace_id), exemplar.value, 0.0)
        _UNIX_S.pack_into(self._exemplars, at + _UNIX_S_AT, exemplar.unix_s)

    def exemplars(self) -> Sequence[Exemplar | None]:
        return newest_exemplars([self]) or ()

    def exemplar_times(self) -> list[float]:
        """Returns when each bucket's exemplar was observed, in Unix seconds; 0 where there is none."""
        return cast("list[float]", self._times.tolist())

    def exemplar(self, bucket: int, unix_s: float) -> Exemplar | None:
        """Returns the exemplar of that time; None if another one takes its place just now."""
        assert self._exemplars is not None
        trace_id, value, read_s = _EXEMPLAR.unpack_from(self._exemplars, bucket * _EXEMPLAR.size)
        return Exemplar(trace_id.hex(), value, unix_s) if read_s == unix_s else None


def newest_exemplars(histograms: Sequence[SharedHistogram]) -> Sequence[Exemplar | None] | None:
    """Returns the newest exemplar of each bucket; None if there is none at all."""
    newest: list[Exemplar | None] = []
    for bucket, times in enumerate(zip(*[h.exemplar_times() for h in histograms], strict=True)):
        unix_s = max(times)
        newest.append(histograms[times.index(unix_s)].exemplar(bucket, unix_s) if unix_s else None)
    return newest if any(newest) else None


class Entry(NamedTuple):
    """One series in a file.

    Attributes:
        family: Its name.
        labels: The values of its labels.
        first: Its first slot.
        slots: How many it has.
    """

    family: str
    labels: tuple[str, ...]
    first: int
    slots: int


def values_path(folder: Path, number: int) -> Path:
    return folder / f"weir-worker-{number}.values"


def index_path(folder: Path, number: int) -> Path:
    return folder / f"weir-worker-{number}.index"


def remove_files(folder: Path) -> None:
    """Removes what workers have left there."""
    for path in (
        *folder.glob("weir-worker-*.values"),
        *folder.glob("weir-worker-*.index"),
        *folder.glob("weir-drains*"),
    ):
        path.unlink(missing_ok=True)


def tell_death(folder: Path, number: int) -> None:
    """The worker is dead: its counters stay, its gauges go."""
    try:
        file = os.open(values_path(folder, number), os.O_WRONLY)
    except FileNotFoundError:  # it died before it had counted anything
        return
    try:
        os.pwrite(file, bytes(DOUBLE_BYTES), ALIVE * DOUBLE_BYTES)
    finally:
        os.close(file)


class NumberFile:
    """This worker's own file; implements ``metrics_text.Store``.

    Args:
        folder: Where the files of all workers are.
        number: This worker's.

    Attributes:
        restored: The series that are there from an earlier worker at this place.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._file = os.open(values_path(folder, number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._chunks: list[mmap.mmap | bytearray] = [self._mapped(0)]
        self._index = os.open(index_path(folder, number), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        whole, entries = read_entries(self._index, 0)
        os.ftruncate(self._index, whole)
        self.restored = tuple(entries)
        self._known = {(entry.family, entry.labels): entry for entry in self.restored}
        self._next = max((entry.first + entry.slots for entry in self.restored), default=HEADER)
        for chunk in range(1, (self._next - 1) // CHUNK + 1):
            self._chunks.append(self._mapped(chunk))
        self._is_shared = True

    def begin(self) -> None:
        """From now on the other workers count this one among the living."""
        header = memoryview(self._chunks[0]).cast("d")
        header[PID] = os.getpid()
        header[ALIVE] = 1.0

    def value(self, family: str, labels: tuple[str, ...]) -> SharedNumber:
        chunk, slot = divmod(self._take(family, labels, 1), CHUNK)
        return SharedNumber.from_buffer(self._chunks[chunk], slot * DOUBLE_BYTES)

    def histogram(
        self, family: str, labels: tuple[str, ...], edges: tuple[float, ...], *, exemplars: bool
    ) -> SharedHistogram:
        buckets = len(edges) + 1
        slots = buckets + 1 + (buckets * _EXEMPLAR_SLOTS if exemplars else 0)
        chunk, slot = divmod(self._take(family, labels, slots), CHUNK)
        return SharedHistogram(edges, memoryview(self._chunks[chunk]).cast("d")[slot : slot + slots])

    def _take(self, family: str, labels: tuple[str, ...], slots: int) -> int:
        """Returns the first slot of a series."""
        entry = self._known.get((family, labels))
        if entry is None:
            first = self._next
            if first % CHUNK + slots > CHUNK or first == len(self._chunks) * CHUNK:  # a series lies within one chunk
                first = len(self._chunks) * CHUNK
                self._chunks.append(self._more())
            entry = Entry(family, labels, first, slots)
            if self._is_shared:
                os.write(self._index, orjson.dumps(tuple(entry)) + b"\n")
            self._next = first + slots
            self._known[family, labels] = entry
        return entry.first

    def _more(self) -> mmap.mmap | bytearray:
        """Returns a further chunk; where there is no more room on the disk, one that no other worker sees."""
        if self._is_shared:
            try:
                return self._mapped(len(self._chunks))
            except OSError as error:
                log.error("new series of this worker are told by this worker alone: %s", error.strerror)
                self._is_shared = False
        return bytearray(CHUNK * DOUBLE_BYTES)

    def _mapped(self, chunk: int) -> mmap.mmap:
        at, size = chunk * CHUNK * DOUBLE_BYTES, CHUNK * DOUBLE_BYTES
        if hasattr(os, "posix_fallocate"):  # a full disk is told here, and not by a signal later
            os.posix_fallocate(self._file, at, size)
        else:  # macOS
            os.ftruncate(self._file, at + size)
        return mmap.mmap(self._file, size, offset=at)


def read_entries(index: int, position: int) -> tuple[int, list[Entry]]:
    """Returns the series told from that position of an index on, and the position after the last whole line."""
    read = b""
    while chunk := os.pread(index, 1 << 20, position + len(read)):
        read += chunk
    whole = read.rfind(b"\n") + 1
    entries: list[Entry] = []
    for line in read[:whole].splitlines():
        family, labels, first, slots = orjson.loads(line)
        entries.append(Entry(family, tuple(labels), first, slots))
    return position + whole, entries
