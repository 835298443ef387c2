"""The file of the flight recorder: SQLite in WAL mode, bounded by rows and bytes.

What was committed outlives the process, however it ends. Several processes may write one file, and others read it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ..flight import FlightRecord
from .record_json import dump, load

VERSION: Final = 1
BUSY_S: Final = 5.0
# Of this share of the rows the file is relieved when it is too large: rarely, and not row by row.
_RELIEF_RATIO: Final = 0.1
_MAGIC: Final = b"SQLite format 3\0"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS flights (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    received_unix_s REAL NOT NULL,
    duration_s REAL NOT NULL,
    pool TEXT NOT NULL,
    record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_request ON flights (request_id);
CREATE INDEX IF NOT EXISTS by_trace ON flights (trace_id);
CREATE INDEX IF NOT EXISTS by_time ON flights (received_unix_s);
"""
_INSERT: Final = (
    "INSERT INTO flights (request_id, trace_id, received_unix_s, duration_s, pool, record) VALUES (?, ?, ?, ?, ?, ?)"
)

Row = tuple[str, str, float, float, str, bytes]


class StoreError(Exception):
    """The file cannot be used; the message says why and what to do."""


def row(record: FlightRecord) -> Row:
    """Returns what the table holds of a closed record."""
    return (
        record.request_id,
        record.trace_id,
        record.received_unix_s,
        (record.done_s or record.received_s) - record.received_s,
        record.pool,
        dump(record),
    )


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
            if version not in (0, VERSION):
                raise StoreError(f"{path} is of another version of Weir: move it away, or name another recorder.path")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA journal_size_limit = 4194304")
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {VERSION}")
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
            connection.execute("SELECT 1 FROM flights LIMIT 1")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot read {path}: {error}") from error
        if version != VERSION:
            raise StoreError(f"{path} is of another version of Weir")
        return cls(connection, path)

    # --- writing

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows, all or none.

        Raises:
            sqlite3.Error: The disk is full, or the file is damaged or gone.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(_INSERT, rows)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def relieve(self, max_rows: int, max_bytes: int) -> int:
        """Removes the oldest rows if there are too many, or the file is too large; returns how many.

        Raises:
            sqlite3.Error: As for ``add``.
        """
        first, last = self._connection.execute("SELECT min(id), max(id) FROM flights").fetchone()
        if first is None:
            return 0
        rows = last - first + 1
        keep = min(rows, max_rows)
        if self._size_bytes() > max_bytes:
            keep = min(keep, int(rows * (1 - _RELIEF_RATIO)))
        if keep == rows:
            return 0
        keep = min(keep, int(max_rows * (1 - _RELIEF_RATIO))) if rows > max_rows else keep
        removed = self._connection.execute("DELETE FROM flights WHERE id <= ?", (last - keep,)).rowcount
        self._connection.executescript("PRAGMA incremental_vacuum")  # execute() would take one step of it: a page
        return removed

    def _size_bytes(self) -> int:
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * page_bytes)

    # --- reading

    def named(self, name: str) -> list[FlightRecord]:
        """Returns the records of a request id or a trace id, the oldest first."""
        found = self._connection.execute(
            "SELECT record FROM flights WHERE request_id = ?1 OR trace_id = ?1 ORDER BY received_unix_s, id", (name,)
        )
        return list(_records(found))

    def slowest(self, most: int, since_unix_s: float, pool: str | None = None) -> list[FlightRecord]:
        """Returns the records that took longest, the slowest first."""
        found = self._connection.execute(
            "SELECT record FROM flights WHERE received_unix_s >= ?1 AND (?2 IS NULL OR pool = ?2)"
            " ORDER BY duration_s DESC, id DESC LIMIT ?3",
            (since_unix_s, pool, most),
        )
        return list(_records(found))

    def between(self, from_unix_s: float, to_unix_s: float, pool: str | None = None) -> Iterator[FlightRecord]:
        """Yields the records that were received in a span of time, in order."""
        found = self._connection.execute(
            "SELECT record FROM flights WHERE received_unix_s >= ?1 AND received_unix_s < ?2"
            " AND (?3 IS NULL OR pool = ?3) ORDER BY received_unix_s, id",
            (from_unix_s, to_unix_s, pool),
        )
        return _records(found)

    def close(self) -> None:
        self._connection.close()


def _check(path: Path) -> None:
    """SQLite itself takes a file of less than its head for an empty one, and writes over it."""
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    if begin not in (b"", _MAGIC):
        raise StoreError(f"{path} holds something else: move it away, or name another file as recorder.path")


def _records(found: Iterable[tuple[bytes]]) -> Iterator[FlightRecord]:
    for (data,) in found:
        yield load(data)
