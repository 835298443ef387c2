"""The recorder's file: what it finds, its bounds, and what happens to it."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from gateway.flight import FlightRecord
from gateway.recorder.batch import batch_of
from gateway.recorder.store import FlightStore, OtherVersion, StoreError
from tests.clients.running import ROOT
from tests.fakes.flight_records import UNIX_S, flight

LARGE = 2**40


def records(count: int) -> list[FlightRecord]:
    """One a second, each 10 ms longer than the one before."""
    return [
        flight(request_id=f"r{n}", received_unix_s=UNIX_S + n, done_s=1.51 + n / 100, pool="ab"[n % 2], trace_id="t")
        for n in range(count)
    ]


def filled(path: Path, count: int) -> FlightStore:
    """In batches of ten."""
    store = FlightStore.writing(path)
    made = records(count)
    for at in range(0, count, 10):
        store.add(batch_of(made[at : at + 10]))
    return store


def ids(found: list[FlightRecord]) -> list[str]:
    return [record.request_id for record in found]


def test_records_are_found_by_both_ids_by_length_and_by_time(tmp_path: Path) -> None:
    filled(tmp_path / "f", 6).close()
    store = FlightStore.reading(tmp_path / "f")
    assert ids(store.named("r3")) == ["r3"]
    assert ids(store.named("t")) == [f"r{n}" for n in range(6)]
    assert store.named("nobody") == []
    assert ids(store.slowest(2, UNIX_S)) == ["r5", "r4"]
    assert ids(store.slowest(9, UNIX_S + 4)) == ["r5", "r4"]
    assert ids(store.slowest(2, UNIX_S, "a")) == ["r4", "r2"]
    assert ids(list(store.between(UNIX_S + 1, UNIX_S + 3))) == ["r1", "r2"]
    assert ids(list(store.between(UNIX_S, UNIX_S + 9, "b"))) == ["r1", "r3", "r5"]
    store.close()


def test_the_newest_rows_stay_when_there_are_too_many(tmp_path: Path) -> None:
    store = filled(tmp_path / "f", 100)
    assert store.relieve(100, LARGE) == 0
    assert store.relieve(45, LARGE) == 60
    assert ids(list(store.between(0, LARGE))) == [f"r{n}" for n in range(60, 100)]
    assert store.relieve(45, LARGE) == 0
    store.close()


def test_a_file_that_is_too_large_gets_smaller(tmp_path: Path) -> None:
    store = filled(tmp_path / "f", 2000)
    sizes: list[int] = []
    while store.relieve(LARGE, 300_000):
        sizes.append(len(list(store.between(0, LARGE))))
    store.close()
    assert sizes == sorted(sizes, reverse=True)
    assert (tmp_path / "f").stat().st_size < 400_000
    assert ids(list(FlightStore.reading(tmp_path / "f").between(0, LARGE)))[-1] == "r1999"


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    filled(tmp_path / "state" / "f", 1).close()
    assert stat.S_IMODE((tmp_path / "state" / "f").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_two_processes_may_write_one_file(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "f", 2), FlightStore.writing(tmp_path / "f")
    other.add(batch_of([flight(request_id="theirs")]))
    one.add(batch_of([flight(request_id="ours")]))
    assert ids(one.named("theirs") + other.named("ours")) == ["theirs", "ours"]
    one.close()
    other.close()


def test_what_was_written_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path;"
        "from tests.gateway.recorder.test_store import filled;"
        "filled(Path(sys.argv[1]), 50); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run((sys.executable, "-c", program, tmp_path / "f"), cwd=ROOT, check=False)
    assert ended.returncode == -9
    store = FlightStore.reading(tmp_path / "f")
    assert len(list(store.between(0, LARGE))) == 50
    store.close()


def test_a_batch_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    store = filled(tmp_path / "f", 1)
    connection = sqlite3.connect(tmp_path / "f", isolation_level=None)
    connection.execute("CREATE TRIGGER full BEFORE INSERT ON flights BEGIN SELECT RAISE(FAIL, 'no room'); END")
    with pytest.raises(sqlite3.Error):
        store.add(batch_of([flight(request_id="lost")]))
    assert connection.execute("SELECT count(*) FROM batches").fetchone() == (1,)
    connection.execute("DROP TRIGGER full")
    connection.close()
    store.add(batch_of([flight(request_id="later")]))
    assert ids(list(store.between(0, LARGE))) == ["r0", "later"]
    store.close()


def test_ids_with_the_same_checksum_are_told_apart(tmp_path: Path) -> None:
    one, other = "plumless", "buckeroo"
    assert crc32(one.encode()) == crc32(other.encode())
    store = FlightStore.writing(tmp_path / "f")
    store.add(batch_of([flight(request_id=one), flight(request_id="x")]))
    assert ids(store.named(one)) == [one]
    assert store.named(other) == []
    store.close()


@pytest.mark.parametrize("content", [b"not a database, and long enough to be looked at" * 30, b"x"])
def test_another_kind_of_file_is_told_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"recorder\.path"):
        FlightStore.writing(path)
    with pytest.raises(StoreError):
        FlightStore.reading(path)
    assert path.read_bytes() == content


DAMAGES = {
    "no JSON": "UPDATE flights SET records = x'00ff'",
    "other JSON": "UPDATE flights SET records = '{}'",
    "no endpoint": """UPDATE flights SET records = '[[], [[0, "e"]], []]'""",
    "no table": "DROP TABLE flights",
}


def _named(store: FlightStore) -> object:
    return store.named("r3")


def _slowest(store: FlightStore) -> object:
    return store.slowest(2, UNIX_S)


def _between(store: FlightStore) -> object:
    return list(store.between(UNIX_S, UNIX_S + 60))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("asked", [_named, _slowest, _between])
def test_a_damaged_file_is_told(tmp_path: Path, damage: str, asked: Callable[[FlightStore], object]) -> None:
    filled(tmp_path / "f", 6).close()
    with closing(sqlite3.connect(tmp_path / "f", isolation_level=None)) as connection:
        connection.execute(damage)
    store = FlightStore.reading(tmp_path / "f")
    with pytest.raises(StoreError, match=r"cannot read .*/f: .*; if it is damaged, move it away"):
        asked(store)
    store.close()


def test_another_versions_file_is_told(tmp_path: Path) -> None:
    filled(tmp_path / "f", 1).close()
    connection = sqlite3.connect(tmp_path / "f")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for opened in (FlightStore.writing, FlightStore.reading):
        with pytest.raises(OtherVersion, match="another version"):
            opened(tmp_path / "f")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"recorder\.path"):
        FlightStore.writing(tmp_path / "file" / "below")
    with pytest.raises(StoreError, match="no flight records"):
        FlightStore.reading(tmp_path / "nothing")
