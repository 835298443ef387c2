"""Metric families and their text form (Prometheus exposition 0.0.4), on our own arrays.

A line's prefix is made once, when its series is; a scrape only joins. The library's renderer would hold the event loop
for 20 ms at 120 histograms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
REMEMBERED = 10_000
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Value:
    """One number: a counter's or a gauge's."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, n: float = 1.0) -> None:
        self.value += n


class CounterFamily:
    """A counter or a gauge with labels."""

    def __init__(self, name: str, help: str, labels: tuple[str, ...], room: Room, kind: str = "counter") -> None:
        self._head = f"# HELP {name} {help}\n# TYPE {name} {kind}\n"
        self._name = name
        self._labels = labels
        self._room = room
        self._series: dict[tuple[str, ...], tuple[str, Value]] = {}

    def at(self, *values: str) -> Value:
        """Returns the series of these label values, made if new."""
        found = self._series.get(values)
        if found is None:
            values = self._room.take(values)
            found = self._series.get(values)
            if found is None:
                found = (f"{self._name}{_label_text(self._labels, values)} ", Value())
                self._series[values] = found
        return found[1]

    def lines(self) -> Iterator[str]:
        yield self._head
        for prefix, series in self._series.values():
            yield f"{prefix}{_number(series.value)}\n"


class HistogramFamily:
    """A histogram with labels."""

    def __init__(self, name: str, help: str, labels: tuple[str, ...], edges: tuple[float, ...], room: Room) -> None:
        self._head = f"# HELP {name} {help}\n# TYPE {name} histogram\n"
        self._name = name
        self._labels = labels
        self._edges = edges
        self._room = room
        self._series: dict[tuple[str, ...], tuple[list[str], Histogram]] = {}

    def at(self, *values: str) -> Histogram:
        """Returns the series of these label values, made if new."""
        found = self._series.get(values)
        if found is None:
            values = self._room.take(values)
            found = self._series.get(values)
            if found is None:
                found = (self._prefixes(values), Histogram(self._edges))
                self._series[values] = found
        return found[1]

    def lines(self) -> Iterator[str]:
        yield self._head
        for prefixes, series in self._series.values():
            total = 0
            for prefix, count in zip(prefixes, series.counts, strict=False):
                total += count
                yield f"{prefix}{total}\n"
            yield f"{prefixes[-2]}{_number(series.sum)}\n"
            yield f"{prefixes[-1]}{total}\n"

    def _prefixes(self, values: tuple[str, ...]) -> list[str]:
        """A prefix for each bucket, then for the sum and for the count."""
        edges = [repr(float(edge)) for edge in self._edges] + ["+Inf"]
        labels = _label_text(self._labels, values)
        return [
            *(f"{self._name}_bucket{_label_text((*self._labels, 'le'), (*values, edge))} " for edge in edges),
            f"{self._name}_sum{labels} ",
            f"{self._name}_count{labels} ",
        ]


class ReadFamily:
    """A gauge, or a counter kept elsewhere, that is read when it is asked for."""

    def __init__(
        self,
        name: str,
        help: str,
        labels: tuple[str, ...],
        read: Callable[[], list[tuple[tuple[str, ...], float]]],
        kind: str = "gauge",
    ) -> None:
        self._head = f"# HELP {name} {help}\n# TYPE {name} {kind}\n"
        self._name = name
        self._labels = labels
        self._read = read

    def lines(self) -> Iterator[str]:
        yield self._head
        for values, value in self._read():
            yield f"{self._name}{_label_text(self._labels, values)} {_number(value)}\n"


class Room:
    """A cap on the number of series, over all families: a label set beyond it is counted under ``other``."""

    def __init__(self, max_series: int) -> None:
        self._left = max_series
        self._refused: set[tuple[str, ...]] = set()

    @property
    def dropped(self) -> int:
        """Label sets that found no room, counted up to ``REMEMBERED``."""
        return len(self._refused)

    def take(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the label values under which a new series is to be made."""
        if self._left > 0:
            self._left -= 1
            return values
        if len(self._refused) < REMEMBERED:
            self._refused.add(values)
        return tuple(OTHER for _ in values)


def _label_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
