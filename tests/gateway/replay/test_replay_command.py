"""``weir replay``, as a person types it: recorded choices, made again."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.flight import Decision, FlightRecord
from gateway.recorder.batch import batch_of
from gateway.recorder.store import FlightStore
from policies.types import EndpointSnapshot, PoolView, RouteQuery
from tests.fakes.flight_records import attempt, flight

SPEEDS_S = {"quick": 0.1, "slow": 1.0}


def _flown(number: int, endpoint: str, now_s: float, in_flight: tuple[int, int] = (0, 0)) -> FlightRecord:
    """A prompt of a thousand tokens that was sent to an idle endpoint of that speed."""
    quick, slow = in_flight
    view = PoolView(
        1000.0 + number,
        number,
        (EndpointSnapshot("quick", "healthy", quick), EndpointSnapshot("slow", "healthy", slow)),
        number * 7919,
    )
    decision = Decision(view, RouteQuery(prompt_tokens=1000))
    first_s = number + 0.02 + SPEEDS_S[endpoint]
    sent = attempt(
        endpoint_id=endpoint,
        decision=decision,
        chosen_s=number + 0.01,
        connected_s=number + 0.01,
        sent_s=number + 0.02,
        head_s=number + 0.05,
        first_output_s=first_s,
        ended_s=first_s + 0.5,
        in_flight=1,
    )
    return flight(
        sent,
        request_id=f"r{number}",
        received_unix_s=now_s - 100,
        pool="m",
        first_output_s=first_s,
        last_output_s=first_s + 0.4,
        done_s=first_s + 0.5,
    )


def _file(folder: Path, records: Iterable[FlightRecord]) -> str:
    store = FlightStore.writing(folder / "flights")
    store.add(batch_of(list(records)))
    store.close()
    return str(folder / "flights")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Sixty requests that took turns."""
    now_s = time.time()
    return _file(tmp_path, (_flown(n, ("quick", "slow")[n % 2], now_s) for n in range(60)))


def test_a_policy_that_learns_would_have_sent_more_to_the_quick_one(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--policy", "latency", "--file", file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["m"]
    assert told["decisions"] == 60
    assert told["recorded"]["endpoints"] == {"quick": 30, "slow": 30}
    assert told["replayed"]["endpoints"]["quick"] > 48
    assert told["replayed"]["expected_ttft_s"]["mean"] < 0.6 * told["recorded"]["expected_ttft_s"]["mean"]
    assert told["recorded"]["expected_ttft_s"]["p90"] == pytest.approx(told["took_ttft_s"]["p90"], rel=0.2)
    assert max(told["examples"], key=lambda one: one["gain_s"])["other"] == "quick"


def test_the_policy_that_made_them_makes_the_same_choices_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = time.time()
    file = _file(tmp_path, (_flown(n, ("quick", "slow")[n % 3 == 0], now_s, (n % 3, 1)) for n in range(12)))
    recorded = sum(n % 3 == 0 for n in range(12))
    assert main(["replay", "--policy", "least_in_flight", "--file", file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["m"]
    assert told["decisions"] == 12
    assert told["replayed"]["endpoints"]["quick"] >= recorded  # idle ones win; those that tie take turns


def test_the_comparison_is_drawn(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--policy", "latency", "--file", file]) == 0
    out = capsys.readouterr().out
    assert "m: by latency," in out
    assert "of 60 requests would have gone elsewhere" in out
    assert "expected, recorded" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--file", "nowhere"], "there are no flight records at nowhere"),
        (["--pool", "other"], "no choices of other are recorded"),
        (["--since", "1ms"], "no choices are recorded of that time"),
    ],
)
def test_what_cannot_be_replayed_is_said(
    file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["replay", "--policy", "latency", "--file", file, *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_damaged_file_is_said(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE flights SET records = x'00ff'")
    assert main(["replay", "--policy", "latency", "--file", file]) == 1
    assert f"cannot read {file}" in capsys.readouterr().err


def test_records_without_a_decision_tell_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, [flight(attempt(), received_unix_s=time.time() - 5)])
    assert main(["replay", "--policy", "latency", "--file", file]) == 1
    assert "no choices are recorded" in capsys.readouterr().err
