"""Opens flight records, closes each once, and tells those who read closed records: a batch at a time.

What reads a record is as much code again as serves the request. In between two requests it would push the other out of
the processor's caches, and cost both several times what they take: so it runs seldom, over many records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint

from .flight import FlightRecord

log = logging.getLogger("weir.flight")

BATCH = 32
WAIT_S = 0.1

Observer = Callable[[Iterator[FlightRecord]], None]


class FlightLog:
    """Part of an event loop.

    Args:
        observers: Told of all closed records, a batch each, one observer after the other; whoever asks one of them for
            something calls ``settle`` first.

    Attributes:
        in_flight: Records that are open.
    """

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        self._closed: list[FlightRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0

    def open(self, request_id: str, method: str, path: str) -> FlightRecord:
        self.in_flight += 1
        return FlightRecord(request_id, method, path, time.perf_counter(), time.time(), [])

    def close(self, record: FlightRecord) -> None:
        """Ends a record; to be called once, from ``finally``. Its readers see it a tenth of a second later at most."""
        self.in_flight -= 1
        record.done_s = time.perf_counter()
        if record.outcome is None:
            record.outcome = "internal_error"
        closed = self._closed
        closed.append(record)
        if len(closed) >= BATCH:
            self.settle()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self.settle)

    def settle(self) -> None:
        """Tells of all that were closed until now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        closed, self._closed = self._closed, []
        for observe in self._observers:
            _tell(observe, closed)


def _tell(observe: Observer, records: Sequence[FlightRecord]) -> None:
    """An observer that fails at a record goes on with the next one."""
    untold = iter(records)
    left = len(records)
    while left:
        try:
            observe(untold)
            return
        except Exception:
            log.exception("a reader of closed records failed; the others go on")
            left = min(length_hint(untold), left - 1)
