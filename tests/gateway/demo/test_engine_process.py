"""An engine's process: its address, its readiness, its log, its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx2
import pytest

from gateway.demo import engine_kind, engines
from gateway.demo.engine_kind import EngineKind
from gateway.demo.engine_process import EngineFailed, EngineProcess, address_in, tail
from gateway.demo.readiness import until_healthy
from tests.fakes.patience import WAIT_S

SIMULATED = "gateway.demo.simulated_engine"
WAITS_FOR_INPUT = "code"  # a module that serves nothing and does not end


@pytest.mark.parametrize(
    ("log", "url"),
    [
        ("", None),
        ("llama.cpp on http://127.0.0.1:41801\n", "http://127.0.0.1:41801"),
        ("Simulated engine on http://127.0.0.1:80 (model a)\n", "http://127.0.0.1:80"),
        ("0.02 I srv init: listening on http://127.0.0.1:0\n", None),
        ("see http://127.0.0.1:9000\n", None),
    ],
)
def test_the_address_is_read_from_the_log(log: str, url: str | None) -> None:
    assert address_in(log) == url


def test_the_end_of_a_log_leaves_blank_lines_out() -> None:
    assert tail("one\n\ntwo  \n \nthree\n", 2) == ["two", "three"]
    assert tail("") == []


async def test_an_engine_is_ready_when_it_is_healthy_and_gone_when_it_is_stopped(tmp_path: Path) -> None:
    with EngineProcess("one", SIMULATED, ("--port", "0"), tmp_path / "log") as engine:
        url = await until_healthy(engine, 30.0)
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            assert (await client.get(f"{url}/v1/models")).json()["data"][0]["id"] == "simulated"
    assert engine.exit_status == 0


async def test_an_engine_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        EngineProcess("one", "gateway.no_such_engine", (), tmp_path / "log") as engine,
        pytest.raises(EngineFailed, match=r"^one ended with status 1 before it was ready$") as failure,
    ):
        await until_healthy(engine, 30.0)
    assert failure.value.log_tail[-1].endswith("No module named gateway.no_such_engine")


async def test_an_engine_that_is_never_ready_is_told(tmp_path: Path) -> None:
    with (
        EngineProcess("one", WAITS_FOR_INPUT, (), tmp_path / "log") as engine,
        pytest.raises(EngineFailed, match=r"^one was not ready within 0\.2 s$"),
    ):
        await until_healthy(engine, 0.2)
    assert engine.exit_status == -signal.SIGTERM


async def test_an_engine_that_does_not_stop_when_asked_is_killed(tmp_path: Path) -> None:
    engine = EngineProcess("one", SIMULATED, ("--port", "0"), tmp_path / "log")
    await until_healthy(engine, 30.0)
    engine.stop(grace_s=0.0)
    assert engine.exit_status in (0, -signal.SIGKILL)


async def test_engines_start_together_each_on_a_port_of_its_own(tmp_path: Path) -> None:
    async with engines.running(engine_kind.simulated(), 2, tmp_path) as urls:
        assert len(set(urls)) == 2
    assert sorted(os.listdir(tmp_path)) == ["vllm-1.log", "vllm-2.log"]


async def test_when_one_engine_fails_all_are_stopped(tmp_path: Path) -> None:
    broken = EngineKind("broken", "openai", "m", SIMULATED, ("--port", "none"), 30.0)
    with pytest.raises(EngineFailed, match=r"^broken 1 ended with status 2"):
        async with engines.running(broken, 2, tmp_path):
            raise AssertionError("it does not get here")


@pytest.mark.parametrize(("cpus", "threads"), [(None, "1"), (1, "1"), (2, "1"), (6, "3"), (64, "4")])
def test_the_engines_share_the_processors(cpus: int | None, threads: str) -> None:
    arguments = engine_kind.llamacpp(Path("model.gguf"), 2, cpus).arguments
    assert arguments[arguments.index("--threads") + 1] == threads
