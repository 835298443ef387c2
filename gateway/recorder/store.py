"""The file of the flight recorder: SQLite in WAL mode, bounded by rows and bytes.

What was committed outlives the process, however it ends. Several processes may write one file, and others read it.

Records are written together, a batch a row: a row and three index entries for each would cost more than all other
telemetry of a request. A small table says what is in each batch: the span of time, the longest request, and a checksum
of every id, which is searched for as bytes in a blob.
"""

from __future__ import annotations

import heapq
import os
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from zlib import crc32

from ..attribution.phases import wall_s
from ..flight import FlightRecord
from .batch import Batch, checksums
from .record_json import SHAPE, load

BUSY_S: Final = 5.0
# Of this share of its records the file is relieved when it is too large: rarely, and not one by one.
_RELIEF_RATIO: Final = 0.1
_MAGIC: Final = b"SQLite format 3\0"
_VERSION: Final = crc32(" ".join(SHAPE).encode()) & 0x7FFFFFFF or 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    first_unix_s REAL NOT NULL,
    last_unix_s REAL NOT NULL,
    longest_s REAL NOT NULL,
    flights INTEGER NOT NULL,
    ids BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS flights (batch INTEGER PRIMARY KEY, records BLOB NOT NULL);
"""


class StoreError(Exception):
    """The file cannot be used; the message says why and what to do."""


class OtherVersion(StoreError):
    """The file was written by another version of Weir."""


class FlightStore:
    """One connection to the file; used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def writing(cls, path: Path) -> FlightStore:
        """Opens the file, made if there is none, readable by its owner alone.

        Raises:
            StoreError: It cannot be written, or is something else.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            _check(path)
            connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                connection.close()
                raise OtherVersion(f"{path} is of another version of Weir")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA journal_size_limit = 4194304")
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot write {path}: {error}; name another file as recorder.path") from error
        return cls(connection, path)

    @classmethod
    def reading(cls, path: Path) -> FlightStore:
        """Opens a file that is there, to read only.

        Raises:
            StoreError: It is not there, or is something else.
        """
        if not path.exists():
            raise StoreError(f"there are no flight records at {path}")
        try:
            _check(path)
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_S, uri=True)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute("SELECT 1 FROM batches LIMIT 1")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot read {path}: {error}") from error
        if version != _VERSION:
            connection.close()
            raise OtherVersion(f"{path} is of another version of Weir")
        return cls(connection, path)

    # --- writing

    def add(self, *batches: Batch) -> None:
        """Adds batches of closed records, all or none.

        Raises:
            sqlite3.Error: The disk is full, or the file is damaged or gone.
        """
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for batch in batches:
                at = execute(
                    "INSERT INTO batches (first_unix_s, last_unix_s, longest_s, flights, ids) VALUES (?, ?, ?, ?, ?)",
                    batch[:-1],
                ).lastrowid
                execute("INSERT INTO flights VALUES (?, ?)", (at, batch.records))
        except BaseException:
            execute("ROLLBACK")
            raise
        execute("COMMIT")

    def relieve(self, max_rows: int, max_bytes: int) -> int:
        """Removes the oldest batches if there are too many records, or the file is too large.

        Returns:
            How many records were removed.

        Raises:
            sqlite3.Error: As for ``add``.
        """
        (rows,) = self._connection.execute("SELECT total(flights) FROM batches").fetchone()
        excess = rows - max_rows
        if excess <= 0 and self._size_bytes() > max_bytes:
            excess = max(rows * _RELIEF_RATIO, 1)
        removed = last = 0
        if excess > 0:
            for batch, flights in self._connection.execute("SELECT id, flights FROM batches ORDER BY id"):
                removed, last = removed + flights, batch
                if removed >= excess:
                    break
        if removed:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM flights WHERE batch <= ?", (last,))
            self._connection.execute("DELETE FROM batches WHERE id <= ?", (last,))
            self._connection.execute("COMMIT")
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute() would take one step of it: a page
        return removed

    def _size_bytes(self) -> int:
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * page_bytes)

    # --- reading: StoreError if the file cannot be read

    def named(self, name: str) -> list[FlightRecord]:
        """Returns the records of a request id or a trace id, the oldest first."""
        with self._reads():
            found = self._connection.execute("SELECT id FROM batches WHERE instr(ids, ?)", (checksums(name),))
            batches = [batch for (batch,) in found.fetchall()]
            records = [r for batch in batches for r in self._batch(batch) if name in (r.request_id, r.trace_id)]
        return sorted(records, key=lambda record: record.received_unix_s)

    def slowest(self, most: int, since_unix_s: float, pool: str | None = None) -> list[FlightRecord]:
        """Returns the records that took longest, the slowest first."""
        found: list[tuple[float, int, int, FlightRecord]] = []
        with self._reads():
            batches = self._connection.execute(
                "SELECT id, longest_s FROM batches WHERE last_unix_s >= ? ORDER BY longest_s DESC", (since_unix_s,)
            )
            for batch, longest_s in batches:
                if len(found) == most and longest_s <= found[0][0]:
                    break  # no other batch has a longer one
                for at, record in enumerate(self._batch(batch)):
                    if record.received_unix_s >= since_unix_s and pool in (None, record.pool):
                        heapq.heappush(found, (wall_s(record), batch, at, record))
                        if len(found) > most:
                            heapq.heappop(found)
        return [record for *_, record in sorted(found, reverse=True)]

    def between(self, from_unix_s: float, to_unix_s: float, pool: str | None = None) -> Iterator[FlightRecord]:
        """Yields the records that were received in a span of time; about in the order in which they ended."""
        with self._reads():
            batches = self._connection.execute(
                "SELECT id FROM batches WHERE first_unix_s < ? AND last_unix_s >= ? ORDER BY id",
                (to_unix_s, from_unix_s),
            )
            for (batch,) in batches:
                for record in self._batch(batch):
                    if from_unix_s <= record.received_unix_s < to_unix_s and pool in (None, record.pool):
                        yield record

    def _batch(self, batch: int) -> list[FlightRecord]:
        found = self._connection.execute("SELECT records FROM flights WHERE batch = ?", (batch,)).fetchone()
        return [] if found is None else load(found[0])  # None: relieved meanwhile

    @contextmanager
    def _reads(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(f"cannot read {self._path}: {error}; if it is damaged, move it away") from error

    def close(self) -> None:
        self._connection.close()


def _check(path: Path) -> None:
    """SQLite itself takes a file of less than its head for an empty one, and writes over it."""
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    if begin not in (b"", _MAGIC):
        raise StoreError(f"{path} holds something else: move it away, or name another file as recorder.path")
