"""Who waited where, and when: a grid of endpoints by 10 ms, from records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from ..attribution.phases import phases
from ..flight import FlightRecord

STEP_S: Final = 0.01
MOST_STEPS: Final = 360_000  # an hour

LayerName = Literal["engine queue", "gateway queue", "scheduling delay"]
LAYERS: Final[dict[LayerName, str]] = {
    "engine queue": "requests",
    "gateway queue": "requests",
    "scheduling delay": "ms",
}


class Heatmap(NamedTuple):
    """What was so at each step of a span of time.

    Attributes:
        from_unix_s: Where the first step begins.
        step_s: Length of a step.
        steps: How many there are.
        layers: For each layer and endpoint one value a step: requests that waited, or the longest delay in milliseconds
            between being admitted and being sent of the requests that were sent then.
    """

    from_unix_s: float
    step_s: float
    steps: int
    layers: dict[LayerName, dict[str, list[float]]]

    def narrowed(self, most_steps: int) -> Heatmap:
        """Returns the same in at most so many steps; of those that become one, the highest value stays."""
        together = max(-(-self.steps // most_steps), 1)
        return Heatmap(
            self.from_unix_s,
            self.step_s * together,
            -(-self.steps // together),
            {
                layer: {
                    endpoint: [max(row[at : at + together]) for at in range(0, self.steps, together)]
                    for endpoint, row in rows.items()
                }
                for layer, rows in self.layers.items()
            },
        )


def heatmap(records: Iterable[FlightRecord], from_unix_s: float, to_unix_s: float) -> Heatmap:
    """Lays records on the grid. Requests that reached no endpoint are in no row.

    Raises:
        ValueError: The span is longer than ``MOST_STEPS``.
    """
    steps = round((to_unix_s - from_unix_s) / STEP_S)
    if steps > MOST_STEPS:
        raise ValueError(f"a heat map spans {MOST_STEPS * STEP_S / 60:g} minutes at most")
    waiting: dict[LayerName, dict[str, list[float]]] = {"engine queue": {}, "gateway queue": {}}
    delays: dict[str, list[float]] = {}
    for record in records:
        attempt = record.final
        if attempt is None:
            continue
        offset_s = record.received_unix_s - from_unix_s - record.received_s  # of a monotonic mark on the grid
        took_s = {phase.name: phase.duration_s for phase in phases(record)}
        for rows in (*waiting.values(), delays):
            rows.setdefault(attempt.endpoint_id, [0.0] * (steps + 1))
        if attempt.sent_s is not None:
            row = waiting["engine queue"][attempt.endpoint_id]
            _add(row, attempt.sent_s + offset_s, took_s.get("engine_queue", 0.0))
            if record.admitted_s is not None and 0 <= (step := _step(attempt.sent_s + offset_s)) < steps:
                row = delays[attempt.endpoint_id]
                row[step] = max(row[step], (attempt.sent_s - record.admitted_s) * 1e3)
        if record.queued_s is not None:
            _add(waiting["gateway queue"][attempt.endpoint_id], record.queued_s + offset_s, took_s.get("queue", 0.0))
    layers: dict[LayerName, dict[str, list[float]]] = {
        name: {endpoint: list(accumulate(row))[:steps] for endpoint, row in sorted(rows.items())}
        for name, rows in waiting.items()
    }
    layers["scheduling delay"] = {endpoint: row[:steps] for endpoint, row in sorted(delays.items())}
    return Heatmap(from_unix_s, STEP_S, steps, layers)


def _step(at_s: float) -> int:
    return int(at_s // STEP_S)


def _add(changes: list[float], from_s: float, duration_s: float) -> None:
    """One more waits in each step that the span touches; the rest of the row is the sum of such changes."""
    last = len(changes) - 1
    begin, end = _step(from_s), _step(from_s + duration_s) + 1
    if duration_s <= 0 or end <= 0 or begin >= last:
        return
    changes[max(begin, 0)] += 1
    changes[min(end, last)] -= 1


def highest(rows: Sequence[Sequence[float]]) -> float:
    """Returns the largest value there is; 0 without any."""
    return max((max(row, default=0.0) for row in rows), default=0.0)
