"""What an engine could tell of itself and does not."""

from __future__ import annotations

from typing import get_args

from adapters.engine_facts import Fact
from adapters.engine_load import Figure

SIGNALS: tuple[str, ...] = (*get_args(Figure), *get_args(Fact))


class MissingSignals:
    """Of one endpoint. An engine that never tells something is not asked for it, and misses nothing.

    Attributes:
        now: Names of those that were missing when last asked for.
        counts: How often each signal was.
    """

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.counts = dict.fromkeys(SIGNALS, 0)

    def asked(self, signal: str, *, told: bool) -> None:
        """The engine was asked, or would have been if it had not said before that it does not tell."""
        if told:
            self.now.discard(signal)
        else:
            self.now.add(signal)
            self.counts[signal] += 1

    def another_engine(self) -> None:
        """Another one answers there now."""
        self.now.clear()
