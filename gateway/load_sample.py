"""What an engine said of its load, and when."""

from __future__ import annotations

import time
from typing import NamedTuple

from adapters.engine_load import UNKNOWN, EngineLoad


class LoadSample(NamedTuple):
    """What an engine said of its load.

    Attributes:
        load: Its figures.
        asked_s: Monotonic time of the question.
    """

    load: EngineLoad = UNKNOWN
    asked_s: float | None = None

    @property
    def age_s(self) -> float | None:
        """How old it is at most; None if there is none."""
        return None if self.asked_s is None else time.perf_counter() - self.asked_s


NO_SAMPLE = LoadSample()
