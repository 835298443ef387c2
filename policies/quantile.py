"""Quantiles of durations in constant memory: a histogram on a logarithmic scale that forgets slowly."""

from __future__ import annotations

from bisect import bisect_left

# Four buckets an octave: what a quantile tells is at most a fifth too long, and never too short.
_PER_OCTAVE = 4
_LEAST_S = 0.001
# What is longer than all edges, about an hour, is one.
_EDGES: tuple[float, ...] = tuple([_LEAST_S * 2.0 ** (at / _PER_OCTAVE) for at in range(22 * _PER_OCTAVE)])
_GROWTH = 1.001  # of a sample's weight over the one before it: a thousand samples ago counts a third
_HEAVIEST = 1e9


class LogHistogram:
    """Durations in seconds, the newer the heavier; reads no clock.

    Attributes:
        samples: How many there were.
    """

    __slots__ = ("_counts", "_weight", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self._counts = [0.0] * (len(_EDGES) + 1)
        self._weight = 1.0

    def add(self, duration_s: float) -> None:
        weight = self._weight
        self._counts[bisect_left(_EDGES, duration_s)] += weight
        self.samples += 1
        self._weight = weight * _GROWTH
        if weight > _HEAVIEST:
            self._counts = [count / weight for count in self._counts]
            self._weight = _GROWTH

    def quantile_s(self, ratio: float) -> float:
        """Returns what this share of the samples, 0 to 1, did not exceed: a bucket's upper edge; 0 without any.

        Of what is longer than all edges, about an hour, that is twice the last edge.
        """
        beyond = (1.0 - ratio) * sum(self._counts)
        found = None
        for at in range(len(_EDGES), -1, -1):
            if self._counts[at]:
                found = at
                beyond -= self._counts[at]
                if beyond < 0:
                    break
        if found is None:
            return 0.0
        return _EDGES[found] if found < len(_EDGES) else 2.0 * _EDGES[-1]
