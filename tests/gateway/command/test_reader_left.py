"""``weir ... | head -1``: who read the output has left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.flight import Decision
from gateway.recorder.batch import batch_of
from gateway.recorder.store import FlightStore
from policies.types import EndpointSnapshot, PoolView, RouteQuery
from tests.fakes.flight_records import attempt, flight

ROOT = Path(__file__).parents[3]
BROKEN_PIPE = 141  # as a shell tells of a command that SIGPIPE ended


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a configuration and a flight recorder's file."""
    file = tmp_path / "flights"
    store = FlightStore.writing(file)
    view = PoolView(1000.0, 0, (EndpointSnapshot("m-0", "healthy", 0),), 1)
    chosen = attempt(decision=Decision(view, RouteQuery(prompt_tokens=10)))
    store.add(batch_of([flight(chosen, received_unix_s=time.time() - 20)]))
    store.close()
    pools = {"m": {"endpoints": ["http://127.0.0.1:9"]}}
    (tmp_path / "weir.yaml").write_text(json.dumps({"pools": pools, "recorder": {"path": str(file)}}))
    return tmp_path


def to_nobody(folder: Path, *argv: str, mixed: bool = False) -> tuple[int, str]:
    """Runs a command whose output nobody reads any more; returns its status and what it complains of."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *argv],
            cwd=folder,
            env={**environ, "PYTHONPATH": str(ROOT)},
            stdout=writing,
            stderr=writing if mixed else subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, (done.stderr or b"").decode()


COMMANDS = (
    ("check",),
    ("check", "--schema"),
    ("check", "-c", "absent.yaml"),
    ("explain", "r1"),
    ("explain", "r1", "--json"),
    ("explain", "--slowest", "3"),
    ("explain", "--heatmap", "--since", "30s"),
    ("replay", "--policy", "random"),
    ("replay", "--policy", "random", "--json"),
    ("--help",),
    ("serve", "--help"),
    ("--version",),
)


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_a_command_ends_quietly_when_its_reader_has_left(argv: tuple[str, ...], folder: Path) -> None:
    assert to_nobody(folder, *argv) == (BROKEN_PIPE, "")


@pytest.mark.parametrize("argv", [("explain", "nobody"), ("check",)], ids=" ".join)
def test_the_same_where_errors_go_there_too(argv: tuple[str, ...], folder: Path) -> None:
    assert to_nobody(folder, *argv, mixed=True)[0] == BROKEN_PIPE


def test_what_is_told_as_an_error_is_told_though_nobody_reads_the_output(folder: Path) -> None:
    status, told = to_nobody(folder, "explain", "nobody")
    assert status == 1
    assert "no request 'nobody' is recorded" in told
