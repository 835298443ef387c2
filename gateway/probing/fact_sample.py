"""What an engine said of itself, and when."""

from __future__ import annotations

from typing import NamedTuple

from adapters.engine_facts import NO_FACTS, EngineFacts

from .load_sample import age_s


class FactSample(NamedTuple):
    """What an engine said of itself.

    Attributes:
        facts: Its words.
        asked_s: Monotonic time of the question.
    """

    facts: EngineFacts = NO_FACTS
    asked_s: float | None = None

    @property
    def age_s(self) -> float | None:
        """How old it is at most; None if there is none."""
        return age_s(self.asked_s)


NO_FACT_SAMPLE = FactSample()
