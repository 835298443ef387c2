"""What an engine has done since it started, and the Prometheus text in which the dialects say it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from gateway.simulator.text import FinishReason

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Tally:
    """A histogram of seconds."""

    def __init__(self, edges_s: Sequence[float]) -> None:
        self.edges_s = tuple(edges_s)
        self.buckets = [0] * (len(self.edges_s) + 1)
        self.sum_s = 0.0

    def record(self, seconds: float) -> None:
        """Adds one value."""
        self.buckets[bisect_left(self.edges_s, seconds)] += 1
        self.sum_s += seconds


class EngineCounts:
    """What the engine has done.

    Args:
        edges_s: Upper bounds of the buckets of its histograms, rising.
    """

    def __init__(self, edges_s: Sequence[float]) -> None:
        self.requests = 0
        self.refused = 0
        self.overloaded = 0
        """Of the refused ones, those that found the queue full."""
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[FinishReason] = Counter()
        self.prefill_s = 0.0
        """From slot to first token, all finished requests together."""
        self.first_token = Tally(edges_s)
        """From the arrival of a request."""
        self.queue = Tally(edges_s)
        """From the arrival to the slot; of finished requests, as are the rest."""
        self.inference = Tally(edges_s)
        """From the slot to the last token."""
        self.duration = Tally(edges_s)
        self.per_token = Tally(edges_s)
        """Mean time between the tokens of a request that has at least two."""


class MetricsText:
    """Builds the text.

    Args:
        prefix: In front of every name.
        labels: Of every sample.
    """

    def __init__(self, prefix: str, **labels: str) -> None:
        self._prefix = prefix
        self._labels = labels
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, value: float) -> None:
        """Adds a metric of one sample."""
        self.add_labelled(name, kind, text, [({}, value)])

    def add_labelled(self, name: str, kind: str, text: str, samples: Sequence[tuple[dict[str, str], float]]) -> None:
        """Adds a metric with more labels."""
        self._head(name, kind, text)
        for labels, value in samples:
            self._sample(name, labels, value)

    def add_histogram(self, name: str, text: str, tally: Tally) -> None:
        """Adds a histogram."""
        self._head(name, "histogram", text)
        below = 0
        for edge, number in zip((*map(str, tally.edges_s), "+Inf"), tally.buckets, strict=True):
            below += number
            self._sample(f"{name}_bucket", {"le": edge}, below)
        self._sample(f"{name}_sum", {}, tally.sum_s)
        self._sample(f"{name}_count", {}, below)

    def render(self) -> bytes:
        """Returns the text."""
        return ("\n".join(self._lines) + "\n").encode()

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines.append(f"# HELP {self._prefix}{name} {text}")
        self._lines.append(f"# TYPE {self._prefix}{name} {kind}")

    def _sample(self, name: str, labels: dict[str, str], value: float) -> None:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in (self._labels | labels).items())
        shown = f"{{{pairs}}}" if pairs else ""
        self._lines.append(f"{self._prefix}{name}{shown} {float(value)}")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
