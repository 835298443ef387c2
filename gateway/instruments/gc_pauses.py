"""How long collections of garbage take: the whole process stands still meanwhile."""

from __future__ import annotations

import gc
from time import perf_counter

from .histogram import Distribution

GENERATIONS = ("0", "1", "2")


class GcPauses:
    """Observes collections, from ``start`` to ``stop``.

    Args:
        pauses: One distribution for each generation.
    """

    def __init__(self, pauses: tuple[Distribution, ...]) -> None:
        self._pauses = pauses
        self._began_s = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._came)

    def stop(self) -> None:
        gc.callbacks.remove(self._came)

    def _came(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = perf_counter()
        elif self._began_s:  # not if this began amid a collection
            self._pauses[info["generation"]].observe(perf_counter() - self._began_s)
