"""Records go to the ring at once and to the file a moment later; what the file does not take is counted."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gateway.config import Config
from gateway.recorder import recorder as module
from gateway.recorder.batch import Batch
from gateway.recorder.location import recorder_path
from gateway.recorder.recorder import RELIEVE_EVERY, RING, Recorder
from gateway.recorder.store import FlightStore
from tests.fakes.flight_records import UNIX_S, flight
from tests.fakes.scripted import eventually

ENDPOINT = {"m": {"endpoints": ["http://127.0.0.1:9"]}}


def recording(path: Path | None, max_rows: int = 1_000_000, max_bytes: int = 2**40) -> Recorder:
    recorder = Recorder(path, max_rows, max_bytes)
    recorder.start()
    return recorder


def stored(path: Path) -> int:
    store = FlightStore.reading(path)
    try:
        return len(list(store.between(0, 2**40)))
    finally:
        store.close()


async def test_a_record_is_in_the_file_a_moment_later(tmp_path: Path) -> None:
    recorder = recording(tmp_path / "f")
    recorder.observe((flight(),))
    await eventually(lambda: stored(tmp_path / "f") == 1)
    recorder.stop()


def test_all_that_waits_is_written_when_it_stops(tmp_path: Path) -> None:
    recorder = recording(tmp_path / "f")
    for n in range(3000):
        recorder.observe((flight(request_id=f"r{n}"),))
    recorder.stop()
    assert stored(tmp_path / "f") == 3000
    assert recorder.dropped == 0


def test_without_a_file_the_newest_are_kept_in_memory() -> None:
    recorder = recording(None)
    for n in range(RING + 5):
        recorder.observe((flight(request_id=f"r{n}"),))
    assert recorder.named("r4") == []
    assert [record.request_id for record in recorder.named("r5")] == ["r5"]
    recorder.stop()


async def test_memory_and_file_are_one(tmp_path: Path) -> None:
    recorder = recording(tmp_path / "f")
    for n in range(RING + 5):
        recorder.observe((flight(request_id=f"r{n}", received_unix_s=UNIX_S + n, done_s=2.0 + n, trace_id=str(n % 2)),))
    await eventually(lambda: stored(tmp_path / "f") == RING + 5)
    assert [record.request_id for record in recorder.named("r0")] == ["r0"]
    assert len(recorder.named("1")) == (RING + 5) // 2
    slowest = recorder.slowest(3, UNIX_S, None)
    assert [record.request_id for record in slowest] == [f"r{n}" for n in range(RING + 4, RING + 1, -1)]
    assert recorder.slowest(3, UNIX_S, "no such pool") == []
    recorder.stop()


def test_the_file_stays_within_its_rows(tmp_path: Path) -> None:
    recorder = recording(tmp_path / "f", max_rows=100)
    for n in range(500):
        recorder.observe((flight(request_id=f"r{n}"),))
    recorder.stop()
    assert stored(tmp_path / "f") <= 100


class Ticks(threading.Event):
    """What the thread waits for; counts how often it did, and does not let it wait for long."""

    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        return super().wait(0.001)


async def test_a_file_that_gets_nothing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    add, relieve = FlightStore.add, FlightStore.relieve

    def noted_add(store: FlightStore, *batches: Batch) -> None:
        seen.append("add")
        add(store, *batches)

    def noted_relieve(store: FlightStore, max_rows: int, max_bytes: int) -> int:
        seen.append("relieve")
        return relieve(store, max_rows, max_bytes)

    monkeypatch.setattr(FlightStore, "add", noted_add)
    monkeypatch.setattr(FlightStore, "relieve", noted_relieve)
    recorder = Recorder(tmp_path / "f", 100, 1 << 30)
    ticks = recorder._stopping = Ticks()  # pyright: ignore[reportPrivateUsage]
    recorder.start()
    try:
        await eventually(lambda: seen == ["relieve"])  # of what an earlier run may have left
        for _ in range(2):
            idle_from = ticks.count
            await eventually(lambda: ticks.count > idle_from + 3 * RELIEVE_EVERY)  # noqa: B023
            before = len(seen)
            recorder.observe((flight(),))
            await eventually(lambda: len(seen) == before + 2)  # noqa: B023
    finally:
        recorder.stop()
    assert seen == ["relieve", "add", "relieve", "add", "relieve"]


def test_a_file_that_cannot_be_used_is_told_and_memory_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "f").write_bytes(b"something else" * 100)
    recorder = recording(tmp_path / "f")
    recorder.observe((flight(),))
    assert len(recorder.named("r1")) == 1
    assert "recorder.path" in caplog.text
    recorder.stop()


async def test_a_file_that_is_damaged_meanwhile_is_told_and_memory_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recording(tmp_path / "f")
    recorder.observe((flight(),))
    await eventually(lambda: stored(tmp_path / "f") == 1)
    with closing(sqlite3.connect(tmp_path / "f", isolation_level=None)) as connection:
        connection.execute("UPDATE flights SET records = x'00ff'")
    assert len(recorder.named("r1")) == 1
    assert len(recorder.slowest(3, UNIX_S, None)) == 1
    assert "if it is damaged, move it away" in caplog.text
    recorder.stop()


def test_a_disk_that_takes_no_more_costs_records_that_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = FlightStore.writing

    def full(path: Path) -> FlightStore:
        opened(path).close()
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return FlightStore(connection, path)

    monkeypatch.setattr(FlightStore, "writing", full)
    recorder = recording(tmp_path / "f")
    for n in range(1000):
        recorder.observe((flight(request_id=f"r{n}"),))
    recorder.stop()
    assert recorder.dropped >= 500
    assert caplog.text.count("flight records are lost") == 1
    assert len(recorder.named("r999")) == 1


def test_a_file_of_another_version_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "f"
    FlightStore.writing(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    recorder = recording(path)
    recorder.observe((flight(),))
    recorder.stop()
    assert stored(path) == 1
    assert (tmp_path / "f.old").exists()
    assert "f.old" in caplog.text


def test_no_more_wait_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    monkeypatch.setattr(module, "WRITE_EVERY_S", 3600.0)
    recorder = recording(tmp_path / "f")
    for n in range(25):
        recorder.observe((flight(request_id=f"r{n}"),))
    assert recorder.dropped == 15
    recorder.stop()
    assert stored(tmp_path / "f") == 10


def test_what_cannot_be_made_ready_for_the_file_is_counted(tmp_path: Path) -> None:
    recorder = recording(tmp_path / "f")
    with pytest.raises(TypeError):
        recorder.observe((flight(request_id="r1", bytes_in=2**80),))
    recorder.observe((flight(request_id="r2"),))
    recorder.stop()
    assert (recorder.dropped, stored(tmp_path / "f")) == (1, 1)


@pytest.mark.parametrize(
    ("path", "listen", "environ", "expected"),
    [
        ("auto", "127.0.0.1:8080", {"HOME": "/h"}, "/h/.local/state/weir/flights-8080.sqlite"),
        ("auto", "127.0.0.1:8080", {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/weir/flights-8080.sqlite"),
        ("auto", "127.0.0.1:0", {"HOME": "/h"}, None),
        ("auto", "127.0.0.1:8080", {}, None),
        ("memory", "127.0.0.1:8080", {"HOME": "/h"}, None),
        ("/var/lib/f", "127.0.0.1:0", {}, "/var/lib/f"),
    ],
)
def test_where_the_file_is(path: str, listen: str, environ: dict[str, str], expected: str | None) -> None:
    config = Config.model_validate({"pools": ENDPOINT, "listen": listen, "recorder": {"path": path}})
    assert recorder_path(config, environ) == (None if expected is None else Path(expected))
