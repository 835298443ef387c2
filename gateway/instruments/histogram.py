"""Histograms on plain lists: an observation is one bisect and two additions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, Protocol, TypeAlias

# Seconds unless said otherwise. TTFT and GAP hold all of vLLM's own edges, so that one panel can overlay both.
TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 2.5, 5, 7.5,
    10, 20, 40, 80, 160, 640,
)  # fmt: skip
GAP = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
DURATION = (
    0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920
)  # fmt: skip
QUEUE = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SMALL = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)


Counts: TypeAlias = "list[float] | memoryview[float]"

_MANY = 5


class Exemplar(NamedTuple):
    """One observation whose trace was kept.

    Attributes:
        trace_id: 32 hexadecimal digits.
        value: What was observed.
        unix_s: When.
    """

    trace_id: str
    value: float
    unix_s: float


class Distribution(Protocol):
    """A histogram, wherever its numbers are.

    Attributes:
        edges: Upper edges, rising.
        counts: Observations by upper edge; the last one is for what lies above all edges.
        sums: One number: the sum of all that was observed.
    """

    edges: tuple[float, ...]
    counts: Counts
    sums: Counts

    def observe(self, value: float) -> None:
        """Adds one value, at least 0."""
        ...

    def observe_all(self, values: Sequence[float]) -> None:
        """Adds many values."""
        ...

    def observe_n(self, value: float, n: int) -> None:
        """Adds the same value ``n`` times: n chunks of one read share the gap before it."""
        ...

    def exemplify(self, exemplar: Exemplar) -> None:
        """Makes this the exemplar of its bucket; its value has been observed already."""
        ...

    def exemplars(self) -> Sequence[Exemplar | None]:
        """Returns the newest exemplar of each bucket; nothing at all if there never was one."""
        ...


def count(values: Sequence[float], edges: tuple[float, ...], counts: Counts) -> None:
    """Adds each value to its bucket, of fewer than 256; of many, those of one bucket together."""
    if len(values) < _MANY:
        for value in values:
            counts[bisect_left(edges, value)] += 1
        return
    buckets = bytes(map(bisect_left, repeat(edges), values))
    for bucket in set(buckets):
        counts[bucket] += buckets.count(bucket)


class Histogram:
    """A distribution of this process's own."""

    __slots__ = ("_exemplars", "counts", "edges", "sums")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts: Counts = [0 for _ in range(len(edges) + 1)]
        self.sums: Counts = [0.0]
        self._exemplars: list[Exemplar | None] = []

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.sums[0] += value

    def observe_all(self, values: Sequence[float]) -> None:
        count(values, self.edges, self.counts)
        self.sums[0] += sum(values)

    def observe_n(self, value: float, n: int) -> None:
        self.counts[bisect_left(self.edges, value)] += n
        self.sums[0] += value * n

    def exemplify(self, exemplar: Exemplar) -> None:
        if not self._exemplars:
            self._exemplars = [None] * len(self.counts)
        self._exemplars[bisect_left(self.edges, exemplar.value)] = exemplar

    def exemplars(self) -> Sequence[Exemplar | None]:
        return self._exemplars
