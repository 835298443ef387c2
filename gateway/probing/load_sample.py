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
        return age_s(self.asked_s)


NO_SAMPLE = LoadSample()


def age_s(asked_s: float | None) -> float | None:
    """Returns how long ago an engine was asked; None if it never was."""
    return None if asked_s is None else time.perf_counter() - asked_s
