"""Who waited where and when, by 10 ms."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from adapters.types import EngineTimings
from gateway.__main__ import main
from gateway.explain.heatmap import MOST_STEPS, STEP_S, Heatmap, heatmap
from gateway.flight import FlightRecord
from gateway.recorder.batch import batch_of
from gateway.recorder.store import FlightStore
from tests.fakes.flight_records import UNIX_S, attempt, flight


def queued(at_s: float = 0.0, endpoint: str = "m-0", **changes: Any) -> FlightRecord:
    """Sent 20 ms after it came; 50 ms in the engine's queue."""
    timed = attempt(endpoint_id=endpoint, timings=EngineTimings(queue_s=0.05, prefill_s=0.1))
    return flight(timed, received_unix_s=UNIX_S + at_s, **changes)


def drawn(*records: FlightRecord, steps: int = 12) -> Heatmap:
    return heatmap(records, UNIX_S, UNIX_S + steps * STEP_S)


def test_each_step_counts_those_who_waited_in_it() -> None:
    found = drawn(queued(0.005), queued(0.025))
    assert found.layers["engine queue"] == {"m-0": [0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0]}


def test_endpoints_have_rows_of_their_own() -> None:
    found = drawn(queued(0.005), queued(0.005, "m-1"))
    assert list(found.layers["engine queue"]) == ["m-0", "m-1"]
    assert found.layers["engine queue"]["m-1"] == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]


def test_what_began_before_or_ends_after_is_cut() -> None:
    found = drawn(queued(-0.035), queued(0.085))
    assert found.layers["engine queue"]["m-0"] == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]
    assert drawn(queued(-5.0)).layers["engine queue"]["m-0"] == [0] * 12


def test_weirs_queue_and_the_delay_to_the_engine_are_layers() -> None:
    found = drawn(queued(0.005, queued_s=0.001, admitted_s=0.012), queued(0.006))
    assert found.layers["gateway queue"]["m-0"] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert found.layers["scheduling delay"]["m-0"] == pytest.approx([0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0])


def test_requests_that_reached_no_endpoint_are_in_no_row() -> None:
    shed = flight(outcome="shed")
    shed.attempts.clear()
    assert drawn(shed).layers["engine queue"] == {}


def test_in_fewer_steps_the_highest_value_stays() -> None:
    found = drawn(queued(0.005), queued(0.025)).narrowed(5)
    assert found.step_s == pytest.approx(0.03)
    assert found.layers["engine queue"]["m-0"] == [1, 2, 2, 1]


def test_a_span_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="60 minutes"):
        heatmap((), 0.0, (MOST_STEPS + 1) * STEP_S)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store = FlightStore.writing(tmp_path / "f")
    timed = attempt(timings=EngineTimings(queue_s=1.0, prefill_s=0.1), first_output_s=1.2)
    store.add(batch_of([flight(timed, received_unix_s=time.time() - 20)]))
    store.close()
    return tmp_path / "f"


def test_a_terminal_shows_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--heatmap", "--since", "30s", "--file", str(file)]) == 0
    out = capsys.readouterr().out
    assert "engine queue, at most 1 requests" in out
    assert "scheduling delay, at most 17 ms" in out
    assert "█" in out


def test_a_picture_shows_it(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "heat.png"
    assert main(["explain", "--heatmap", "--since", "30s", "--file", str(file), "--png", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--since", "2h"], "--since 5m"), (["--url", "http://127.0.0.1:9"], "--file")]
)
def test_what_cannot_be_drawn_is_told(
    arguments: list[str], told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--heatmap", "--file", str(file), *arguments]) == 1
    assert told in capsys.readouterr().err


def test_a_heat_map_is_not_told_as_json(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--heatmap", "--json", "--file", str(file)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "a heat map has no JSON: leave --json out" in told.err


@pytest.mark.parametrize("name", ["no/such/folder/heat.png", "."])
def test_a_picture_that_cannot_be_written_is_told(
    name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / name
    assert main(["explain", "--heatmap", "--file", str(file), "--png", str(picture)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert f"cannot write {picture}: " in told.err
    assert "--png" in told.err


def test_nothing_recorded_is_an_empty_map(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["explain", "--heatmap", "--pool", "no", "--file", str(file)]) == 0
    assert "engine queue, at most 0 requests" in capsys.readouterr().out
    picture = tmp_path / "heat.png"
    assert main(["explain", "--heatmap", "--pool", "no", "--file", str(file), "--png", str(picture)]) == 0
