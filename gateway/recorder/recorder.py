"""Takes closed records: into a ring in memory, and from a thread of its own into the file.

They are made ready for the file at once, on the event loop. A thread that did it a moment later would find them gone
from the processor's caches, take four times as long, and hold the interpreter for it all the same.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from ..attribution.phases import wall_s
from ..flight import FlightRecord
from .batch import Batch, batch_of
from .store import FlightStore, OtherVersion, StoreError

log = logging.getLogger("weir.recorder")

RING: Final = 1000
# Waiting to be written; more come only if the disk does not keep up.
MOST_WAITING: Final = 20_000
WRITE_EVERY_S: Final = 0.25
MOST_TOGETHER: Final = 16  # batches in one transaction
RELIEVE_EVERY: Final = 20  # turns, if there was something to write in one of them


class Recorder:
    """An observer of ``FlightLog``, behind all that note something on a record.

    A file that cannot be written costs records in it, which are counted, and never a request.

    Attributes:
        dropped: Records that did not get into the file.
    """

    def __init__(self, path: Path | None, max_rows: int, max_bytes: int) -> None:
        self.dropped = 0
        self._path = path
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._ring: deque[FlightRecord] = deque(maxlen=RING)
        self._waiting: deque[Batch] = deque()
        self._ready = 0  # records, by the event loop
        self._done = 0  # by the thread: written, or lost
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to write, if there is a file; one that cannot be used is told."""
        if self._path is None:
            return
        try:
            store = _opened(self._path)
        except StoreError as error:
            log.warning("%s; until then records are kept in memory only", error)
            self._path = None
            return
        self._thread = threading.Thread(target=self._write_on, args=(store,), name="weir-recorder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Writes what is still to be written, and closes the file. Blocks for as long as that takes."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None

    def observe(self, records: Iterable[FlightRecord]) -> None:
        """Takes closed records."""
        taken = tuple(records)
        self._ring.extend(taken)
        if self._thread is None or not taken:
            return
        if self._ready - self._done + len(taken) > MOST_WAITING:
            self.dropped += len(taken)
            return
        try:
            self._waiting.append(batch_of(taken))
        except TypeError:
            self.dropped += len(taken)
            raise
        self._ready += len(taken)

    # --- what is asked of it; reads the file, and so is not for the event loop

    def named(self, name: str) -> list[FlightRecord]:
        """Returns the records of a request id or a trace id, the oldest first."""
        recent = [record for record in self._ring.copy() if name in (record.request_id, record.trace_id)]
        return _merged(self._stored(lambda store: store.named(name)), recent)

    def slowest(self, most: int, since_unix_s: float, pool: str | None) -> list[FlightRecord]:
        """Returns the records that took longest, the slowest first."""
        recent = [
            record
            for record in self._ring.copy()
            if record.received_unix_s >= since_unix_s and pool in (None, record.pool)
        ]
        found = _merged(self._stored(lambda store: store.slowest(most, since_unix_s, pool)), recent)
        return sorted(found, key=wall_s, reverse=True)[:most]

    def _stored(self, ask: Callable[[FlightStore], list[FlightRecord]]) -> list[FlightRecord]:
        if self._path is None or self._thread is None:
            return []
        try:
            with closing(FlightStore.reading(self._path)) as store:
                return ask(store)
        except StoreError as error:
            log.warning("%s", error)
            return []

    # --- the thread

    def _write_on(self, store: FlightStore) -> None:
        turns, may_be_too_much = 0, True  # an earlier run, with larger bounds, may have left it
        while not self._stopping.wait(WRITE_EVERY_S):
            may_be_too_much |= self._write(store)
            turns += 1
            if turns >= RELIEVE_EVERY and may_be_too_much:
                turns, may_be_too_much = 0, self._relieve(store)
        if self._write(store) or may_be_too_much:
            self._relieve(store)
        store.close()

    def _write(self, store: FlightStore) -> bool:
        """Returns whether there was something to write."""
        any_came = bool(self._waiting)
        while batches := self._taken():
            flights = sum(batch.flights for batch in batches)
            try:
                store.add(*batches)
            except sqlite3.Error as error:
                if self.dropped == 0:
                    log.warning(
                        "flight records are lost: %s takes none (%s); weir_recorder_dropped_total counts",
                        self._path,
                        error,
                    )
                self.dropped += flights
            self._done += flights
        return any_came

    def _taken(self) -> list[Batch]:
        """Takes what waits, at most as much as is lost together if the file takes none."""
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER))]

    def _relieve(self, store: FlightStore) -> bool:
        """Returns whether there may still be too much."""
        try:
            return store.relieve(self._max_rows, self._max_bytes) > 0
        except sqlite3.Error as error:
            log.warning("%s could not be relieved of old records: %s", self._path, error)
            return True


def _opened(path: Path) -> FlightStore:
    """Opens the file. One of another version is put aside: it is read by that version's ``weir explain``.

    Raises:
        StoreError: It cannot be used.
    """
    try:
        return FlightStore.writing(path)
    except OtherVersion as error:
        aside = path.with_name(f"{path.name}.old")
        try:
            path.replace(aside)
        except OSError as refused:
            raise StoreError(f"cannot move {path} away: {refused}") from refused
        log.warning("%s: it is now %s", error, aside)
        return FlightStore.writing(path)


def _merged(stored: list[FlightRecord], recent: list[FlightRecord]) -> list[FlightRecord]:
    """Both, each record once, the oldest first."""
    by_arrival = {(record.request_id, record.received_unix_s): record for record in (*stored, *recent)}
    return sorted(by_arrival.values(), key=lambda record: record.received_unix_s)
