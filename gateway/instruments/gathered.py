"""Values on their way into a distribution."""

from __future__ import annotations

from bisect import bisect_left

from ..flight import FlightRecord
from .histogram import Distribution, Exemplar


class Gathered(list[float]):
    """Values on their way into a distribution, and which of them belong to traces that are exported."""

    __slots__ = ("_distribution", "_traced")

    def __init__(self, distribution: Distribution) -> None:
        super().__init__()
        self._distribution = distribution
        self._traced: list[tuple[float, FlightRecord]] = []

    def exemplify(self, record: FlightRecord) -> None:
        """The trace of the last value's record is exported: whoever sees the value's bucket can find it."""
        if record.trace_id:
            self._traced.append((self[-1], record))

    def settle(self) -> None:
        """Observes the values; the newest of a bucket whose trace is exported becomes its exemplar."""
        if not self:
            return
        distribution = self._distribution
        distribution.observe_all(self)
        self.clear()
        if self._traced:
            newest = {bisect_left(distribution.edges, traced[0]): traced for traced in self._traced}
            for value, record in newest.values():
                distribution.exemplify(Exemplar(record.trace_id, value, _ended_unix_s(record)))
            self._traced.clear()


def _ended_unix_s(record: FlightRecord) -> float:
    return record.received_unix_s + (record.done_s or record.received_s) - record.received_s
