"""Metric families and their text, on our own arrays.

A line's prefix is made once, when its series is; a scrape only joins. The library's renderer would hold the event loop
for 20 ms at 120 histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import fsum
from operator import add
from typing import Generic, NamedTuple, Protocol, TypeVar

from . import exposition
from .exposition import HistogramText, Kind
from .histogram import Distribution, Exemplar, Histogram
from .number_file import SharedHistogram, newest_exemplars

OTHER = "other"
REMEMBERED = 10_000

Labels = tuple[str, ...]
T = TypeVar("T")
S = TypeVar("S")
P = TypeVar("P")


class Number(Protocol):
    """One number: a counter's or a gauge's."""

    value: float

    def add(self, n: float = 1.0) -> None: ...


class Value:
    """A number of this process's own."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, n: float = 1.0) -> None:
        self.value += n


class Store(Protocol):
    """Where the numbers of new series are kept."""

    def value(self, family: str, labels: Labels) -> Number: ...

    def histogram(self, family: str, labels: Labels, edges: tuple[float, ...], *, exemplars: bool) -> Distribution: ...


class Heap:
    """A store in this process's own memory."""

    def value(self, family: str, labels: Labels) -> Number:
        return Value()

    def histogram(self, family: str, labels: Labels, edges: tuple[float, ...], *, exemplars: bool) -> Distribution:
        return Histogram(edges)


class Part(NamedTuple):
    """Another worker's numbers of one series.

    Attributes:
        slots: The numbers.
        alive: One number: 1 while that worker lives, else 0.
    """

    slots: memoryview[float]
    alive: memoryview[float]


class Total(NamedTuple):
    """A histogram over all workers.

    Attributes:
        labels: The values of its labels.
        counts: Observations by upper edge, not added up.
        sum: Of all that was observed.
    """

    labels: Labels
    counts: Sequence[float]
    sum: float


class Row(Generic[T, S, P]):
    """One series: its text, this worker's numbers, None before it has any, and those of others."""

    __slots__ = ("own", "parts", "text")

    def __init__(self, text: S) -> None:
        self.own: T | None = None
        self.parts: list[P] = []
        self.text = text


class Family(Protocol):
    """All series of one name.

    Attributes:
        name: It, a counter's with ``_total``.
        help: What it counts.
        labels: The names of its labels.
        kind: Its type.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    kind: Kind

    def lines(self, *, openmetrics: bool = False) -> Iterator[str]:
        """Yields the text, in pieces of whole lines."""
        ...

    def join(self, labels: Labels, part: Part) -> None:
        """Takes in another worker's numbers of one series."""
        ...

    def restore(self, labels: Labels) -> None:
        """Goes on with a series that the store has from before."""
        ...


class CounterFamily:
    """A counter with labels."""

    kind: Kind = "counter"

    def __init__(self, name: str, help: str, labels: tuple[str, ...], room: Room, store: Store | None = None) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._room = room
        self._store = store or Heap()
        self._rows: dict[Labels, Row[Number, str, memoryview[float]]] = {}

    @property
    def series(self) -> int:
        """How many series it has."""
        return len(self._rows)

    def at(self, *values: str) -> Number:
        """Returns the series of these label values, made if new."""
        row = self._rows.get(values)
        if row is None or row.own is None:
            values = self._room.take(values)
            row = self._row(values)
            if row.own is None:
                row.own = self._store.value(self.name, values)
        return row.own

    def restore(self, labels: Labels) -> None:
        self.at(*labels)

    def join(self, labels: Labels, part: Part) -> None:
        self._row(labels).parts.append(part.slots)

    def totals(self) -> Iterator[tuple[Labels, float]]:
        """Yields each series over all workers."""
        for labels, row in self._rows.items():
            yield labels, _total(row)

    def lines(self, *, openmetrics: bool = False) -> Iterator[str]:
        yield exposition.head(self.name, self.help, self.kind, openmetrics=openmetrics)
        for row in tuple(self._rows.values()):
            yield f"{row.text}{exposition.number(_total(row))}\n"

    def _row(self, values: Labels) -> Row[Number, str, memoryview[float]]:
        row = self._rows.get(values)
        if row is None:
            row = self._rows[values] = Row(f"{self.name}{exposition.labels(self.labels, values)} ")
        return row


def _total(row: Row[Number, str, memoryview[float]]) -> float:
    own = row.own.value if row.own is not None else 0.0
    return fsum([own, *[slots[0] for slots in row.parts]]) if row.parts else own


class HistogramFamily:
    """A histogram with labels.

    Attributes:
        edges: Upper edges, rising.
    """

    kind: Kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,
        labels: tuple[str, ...],
        edges: tuple[float, ...],
        room: Room,
        store: Store | None = None,
        *,
        exemplars: bool = False,
    ) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self.edges = edges
        self._room = room
        self._store = store or Heap()
        self._exemplars = exemplars
        self._rows: dict[Labels, Row[Distribution, HistogramText, SharedHistogram]] = {}

    @property
    def series(self) -> int:
        """How many series it has."""
        return len(self._rows)

    def at(self, *values: str) -> Distribution:
        """Returns the series of these label values, made if new."""
        row = self._rows.get(values)
        if row is None or row.own is None:
            values = self._room.take(values)
            row = self._row(values)
            if row.own is None:
                row.own = self._store.histogram(self.name, values, self.edges, exemplars=self._exemplars)
        return row.own

    def restore(self, labels: Labels) -> None:
        self.at(*labels)

    def join(self, labels: Labels, part: Part) -> None:
        self._row(labels).parts.append(SharedHistogram(self.edges, part.slots))

    def totals(self) -> Iterator[Total]:
        """Yields each series over all workers."""
        for labels, row in self._rows.items():
            counts, sum = self._total(row)
            yield Total(labels, counts, sum)

    def lines(self, *, openmetrics: bool = False) -> Iterator[str]:
        yield exposition.head(self.name, self.help, self.kind, openmetrics=openmetrics)
        for row in tuple(self._rows.values()):
            counts, sum = self._total(row)
            exemplars = self._newest(row) if openmetrics and self._exemplars else None
            yield exposition.histogram(row.text, counts, sum, exemplars)

    def _row(self, values: Labels) -> Row[Distribution, HistogramText, SharedHistogram]:
        row = self._rows.get(values)
        if row is None:
            row = self._rows[values] = Row(exposition.histogram_text(self.name, self.labels, values, self.edges))
        return row

    def _total(self, row: Row[Distribution, HistogramText, SharedHistogram]) -> tuple[Sequence[float], float]:
        """Returns the counts and the sum over all workers."""
        own = row.own
        if not row.parts and isinstance(own, Histogram):
            return own.counts, own.sums[0]
        arrays = [part.numbers() for part in row.parts]
        if own is not None:
            arrays.append(own.numbers() if isinstance(own, SharedHistogram) else [*own.counts, *own.sums])
        *counts, sum = arrays[0] if len(arrays) == 1 else _added(arrays)
        return counts, sum

    def _newest(self, row: Row[Distribution, HistogramText, SharedHistogram]) -> Sequence[Exemplar | None] | None:
        """The newest exemplar of each bucket, over all workers."""
        if not row.parts:
            return (row.own.exemplars() if row.own is not None else ()) or None
        own = [row.own] if isinstance(row.own, SharedHistogram) else []
        return newest_exemplars([*own, *row.parts])


def _added(arrays: list[list[float]]) -> list[float]:
    """Adds counts up, and sums, each the last of its array.

    Sums are added exactly: each worker adds in another order, and a sum that another worker told smaller by its last
    digit would look like a counter that began anew.
    """
    added = arrays[0]
    for other in arrays[1:]:
        added = list(map(add, added, other))
    added[-1] = fsum([array[-1] for array in arrays])
    return added


class ReadFamily:
    """A gauge, or a counter kept elsewhere, that is read when it is asked for.

    With several workers, counters and gauges with ``summed`` are those of all, as each has last published them. Any
    other gauge tells what the worker that answers knows.
    """

    def __init__(
        self,
        name: str,
        help: str,
        labels: tuple[str, ...],
        read: Callable[[], Sequence[tuple[Labels, float]]],
        kind: Kind = "gauge",
        *,
        summed: bool = False,
    ) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self.kind: Kind = kind
        self._read = read
        self._summed = summed or kind == "counter"
        self._prefixes: dict[Labels, str] = {}
        self._parts: dict[Labels, list[Part]] = {}
        self._restored: set[Labels] = set()
        self._published: dict[Labels, tuple[Number, float]] = {}

    def restore(self, labels: Labels) -> None:
        self._restored.add(labels)

    def join(self, labels: Labels, part: Part) -> None:
        self._parts.setdefault(labels, []).append(part)

    def publish(self, store: Store) -> None:
        """Writes the numbers to where other workers read them; a counter goes on from where it was restored."""
        if not self._summed:
            return
        for labels, value in self._read():
            number, base = self._published_at(labels, store)
            number.value = base + value
        for labels in self._restored - self._published.keys():
            self._published_at(labels, store)

    def lines(self, *, openmetrics: bool = False) -> Iterator[str]:
        yield exposition.head(self.name, self.help, self.kind, openmetrics=openmetrics)
        last, self._prefixes = self._prefixes, {}  # only as many as there are now: an engine may tell ever new versions
        for labels, value in self._totals():
            prefix = last.get(labels) or f"{self.name}{exposition.labels(self.labels, labels)} "
            self._prefixes[labels] = prefix
            yield f"{prefix}{exposition.number(value)}\n"

    def _published_at(self, labels: Labels, store: Store) -> tuple[Number, float]:
        published = self._published.get(labels)
        if published is None:
            number = store.value(self.name, labels)
            published = self._published[labels] = (number, number.value if self.kind == "counter" else 0.0)
        return published

    def _totals(self) -> Sequence[tuple[Labels, float]]:
        if not (self._parts or self._published):
            return self._read()
        # Its own as published, not as they are by now: what is told once is told by every other worker too
        totals = {labels: number.value for labels, (number, _) in self._published.items()}
        for labels, parts in self._parts.items():
            others = [p.slots[0] if self.kind == "counter" else p.slots[0] * p.alive[0] for p in parts]
            totals[labels] = fsum([totals.get(labels, 0.0), *others])
        return list(totals.items())


class Room:
    """A cap on the number of series, over all families: a label set beyond it is counted under ``other``."""

    def __init__(self, max_series: int) -> None:
        self._left = max_series
        self._refused: set[Labels] = set()

    @property
    def dropped(self) -> int:
        """Label sets that found no room, counted up to ``REMEMBERED``."""
        return len(self._refused)

    def take(self, values: Labels) -> Labels:
        """Returns the label values under which a new series is to be made."""
        other = tuple(OTHER for _ in values)
        if values == other and values:
            return other
        if self._left > 0:
            self._left -= 1
            return values
        if len(self._refused) < REMEMBERED:
            self._refused.add(values)
        return other
