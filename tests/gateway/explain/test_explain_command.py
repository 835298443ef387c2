"""``weir explain``, as a person types it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from adapters.types import EngineTimings
from gateway.__main__ import main
from gateway.explain import source
from gateway.flight import FlightRecord
from gateway.recorder.batch import batch_of
from gateway.recorder.store import FlightStore
from tests.fakes.flight_records import attempt, flight
from tests.fakes.terminal import in_terminal

TRACE = "0af7651916cd43dd8448eb211c80319c"
UUID = "0193f0b8-6d3e-7cc0-8d4a-0c9f4c0f5e12"
WHY = "decode took 1.0 s for 21 tokens, 45 ms each; waited 480 ms for m-0, which does not say for what"


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PATIENCE_S", 0.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A slow chat behind an embedding of the same trace, and two quick requests of another pool."""
    now_s = time.time()
    queued = attempt(timings=EngineTimings(queue_s=0.4, prefill_s=0.08))
    lost = attempt(endpoint_id="m-1", first_output_s=None, ended_s=0.009, outcome="upstream_error", error_type="reset")
    write(
        tmp_path / "f",
        flight(request_id="emb", received_unix_s=now_s - 20, operation="embeddings", model="bge", done_s=0.5),
        flight(lost, queued, request_id="chat", received_unix_s=now_s - 19),
        flight(request_id="quick[red]", received_unix_s=now_s - 10, done_s=0.2, trace_id="", pool="other"),
        flight(request_id="old", received_unix_s=now_s - 7200, done_s=90.0, trace_id=""),
    )
    return tmp_path / "f"


def write(path: Path, *records: FlightRecord) -> None:
    store = FlightStore.writing(path)
    store.add(batch_of(records))
    store.close()


def test_a_request_that_named_no_model_is_drawn_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "f", flight(request_id="lost", received_unix_s=time.time(), model="", trace_id=""))
    assert main(["explain", "lost", "--file", str(tmp_path / "f")]) == 0
    assert capsys.readouterr().out.startswith("chat at m-0: request lost\n")


def test_a_request_is_drawn_with_its_verdict(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat", "--file", str(file)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"chat m at m-0: request chat, trace {TRACE}" in out
    assert "answered in 1.5 s: decode took 1.0 s for 21 tokens, 45 ms each; waited 400 ms in m-0's queue" in out
    assert "engine queue 400 ms █" in out
    assert "2 m-0 ok" in out
    assert "1 m-1 reset" in out


def test_the_requests_of_a_trace_are_one_pipeline(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", TRACE, "--file", str(file)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"2 requests of trace {TRACE} in 2.5 s, 500 ms of it with none of them at Weir" in out
    assert "embeddings bge 500 ms 20%" in out
    assert "chat m 1.5 s 60%" in out


def test_programs_get_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat", "--json", "--file", str(file)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["request_id"] == "chat"
    assert sum(phase["duration_s"] for phase in told["phases"]) == pytest.approx(told["duration_s"])
    assert {phase["name"]: phase["source"] for phase in told["phases"]}["engine_queue"] == "measured"
    assert main(["explain", TRACE, "--json", "--file", str(file)]) == 0
    assert [one["request_id"] for one in json.loads(capsys.readouterr().out)] == ["emb", "chat"]


def test_the_slowest_are_listed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--slowest", "2", "--json", "--file", str(file)]) == 0
    assert [one["request_id"] for one in json.loads(capsys.readouterr().out)] == ["chat", "emb"]
    assert main(["explain", "--slowest", "9", "--since", "3h", "--pool", "m", "--json", "--file", str(file)]) == 0
    assert [one["request_id"] for one in json.loads(capsys.readouterr().out)] == ["old", "chat", "emb"]
    assert main(["explain", "--slowest", "9", "--file", str(file)]) == 0
    assert "quick[red]" in capsys.readouterr().out


def test_the_list_says_why_a_resumed_answer_took_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broke = attempt(endpoint_id="a", chunks=3, ended_s=0.9, outcome="upstream_error", error_type="truncated_stream")
    went_on = attempt(endpoint_id="b", chunks=3, resumes=True, chosen_s=0.9, sent_s=0.9, first_output_s=1.0)
    write(tmp_path / "f", flight(broke, went_on, received_unix_s=time.time() - 9, resume="resumed"))
    assert main(["explain", "--slowest", "1", "--file", str(tmp_path / "f")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert " decode took" in out
    assert "answered in" not in out
    assert "truncated_stream" not in out


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["nobody"], 1, "no request 'nobody' is recorded"),
        (["--slowest", "3", "--pool", "no"], 1, "no requests of no are recorded"),
        ([], 2, "name a request id or a trace id, or ask for --slowest N or --heatmap"),
        (["chat", "--slowest", "3"], 2, "name a request id or a trace id, or ask for --slowest N or --heatmap"),
    ],
)
def test_what_is_not_there_is_told(
    arguments: list[str], status: int, told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments, "--file", str(file)]) == status
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--slowest", "0"], ["--slowest", "x"], ["--slowest", "1", "--since", "soon"]])
def test_options_that_mean_nothing_are_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", *arguments])
    assert "must be a" in capsys.readouterr().err


def test_without_a_file_it_says_where_it_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["explain", "r1"]) == 1
    told = capsys.readouterr().err
    assert str(tmp_path / "weir/flights-8080.sqlite") in told
    assert "--url" in told


def test_the_configuration_says_which_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pools = "pools: {m: {endpoints: ['http://127.0.0.1:9']}}\n"
    Path("weir.yaml").write_text(f"{pools}recorder: {{path: {file}}}\n")
    assert main(["explain", "chat", "--json"]) == 0
    Path("other.yaml").write_text(f"{pools}recorder: {{path: memory}}\n")
    assert main(["explain", "chat", "-c", "other.yaml"]) == 1
    assert "--url" in capsys.readouterr().err
    Path("other.yaml").write_text("pools: {}\n")
    assert main(["explain", "chat", "-c", "other.yaml"]) == 1


def words_of(lines: list[str], part: slice) -> str:
    return " ".join(" ".join(line[part] for line in lines).split())


@pytest.fixture
def uuids(tmp_path: Path) -> Path:
    now_s = time.time()
    write(
        tmp_path / "u",
        flight(request_id=UUID, received_unix_s=now_s - 20),
        flight(request_id="x" * 60, received_unix_s=now_s - 19, outcome="upstream_error", done_s=1.2),
    )
    return tmp_path / "u"


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_the_list_of_the_slowest_fits_the_terminal_and_loses_nothing(columns: int, uuids: Path) -> None:
    lines = in_terminal(columns, "explain", "--slowest", "5", "--file", str(uuids))
    assert max(map(len, lines)) <= columns
    drawn = words_of(lines, slice(None))
    assert all(word in drawn for word in ("took", "ttft", "outcome", "why", "1.5 s", "499 ms", "upstream_error"))
    assert UUID in drawn
    at = next(line.index(UUID) for line in lines if UUID in line)
    assert "x" * 60 in "".join(line[at : at + 60].rstrip() for line in lines if line[at : at + 1] == "x")
    assert (
        words_of(lines, slice(next(line.index("decode") for line in lines if "decode" in line), None)).count(WHY) == 2
    )
    assert "…" not in drawn


def test_a_waterfall_fits_the_terminal_with_all_of_its_bars(file: Path) -> None:
    lines = in_terminal(60, "explain", "chat", "--file", str(file))
    assert max(map(len, lines)) <= 60
    (decode,) = [line for line in lines if line.startswith("decode")]
    (gateway,) = [line for line in lines if line.startswith("gateway")]
    assert decode.count("█") > 10
    assert gateway.rstrip().endswith(" █")


def test_a_pipe_gets_each_request_of_the_list_on_one_line(
    uuids: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["explain", "--slowest", "5", "--file", str(uuids)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith(UUID)]
    assert line.endswith(f"{WHY}, with one more of Weir's requests there")


@pytest.mark.parametrize("command", [["chat"], ["--slowest", "3"], [TRACE]])
def test_a_picture_or_json_is_of_a_heat_map_and_only_one_of_the_two(
    command: list[str], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "p.png"
    assert main(["explain", *command, "--png", str(picture), "--file", str(file)]) == 2
    assert "--png draws a heat map: ask for --heatmap" in capsys.readouterr().err
    assert not picture.exists()


def test_the_engines_secrets_are_not_needed_to_find_the_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(
        "pools: {m: {endpoints: [{url: http://a, api_key: '${WEIR_TEST_KEY}'}]}}\n"
        "admin: {token: '${WEIR_TEST_TOKEN}'}\n"
        f"recorder: {{path: {file}}}\n"
    )
    assert main(["explain", "chat", "--json", "-c", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["request_id"] == "chat"
    assert main(["replay", "--policy", "random", "-c", str(config)]) == 1
    assert "no choices are recorded" in capsys.readouterr().err
    config.write_text("recorder: {pth: x}\n")
    assert main(["explain", "chat", "-c", str(config)]) == 1
    assert 'recorder.pth: unknown key, did you mean "path"?' in capsys.readouterr().err
