"""``weir engine`` as a process and as options."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.simulator.command import add_arguments, run, settings_from
from gateway.simulator.server import Settings
from tests.fakes.patience import WAIT_S

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "simulated-engine.md"
PROGRAM = (
    "import argparse, sys; from gateway.simulator.command import add_arguments, run; "
    "parser = argparse.ArgumentParser(); add_arguments(parser); sys.exit(run(parser.parse_args()))"
)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return parser.parse_args(["--port", "0", *words])


def test_options_take_units_and_become_settings() -> None:
    settings = settings_from(
        parsed(
            *("--model", "a", "--model", "b", "--ttft", "1.5s", "--itl", "5ms", "--slots", "4", "--seed", "9"),
            *("--prefill-rate", "100", "--batch-knee", "2", "--context", "512", "--jitter", "0.2"),
        )
    )
    assert (settings.models, settings.context_tokens, settings.seed) == (("a", "b"), 512, 9)
    pace = settings.pace
    assert (pace.ttft_s, pace.itl_s, pace.slots, pace.batch_knee) == (1.5, 0.005, 4, 2)
    assert (pace.prefill_tokens_per_s, pace.jitter_ratio) == (100.0, 0.2)


def test_without_options_it_has_the_documented_settings() -> None:
    assert settings_from(parsed()) == Settings()


def test_the_knee_is_the_number_of_slots_unless_given() -> None:
    assert settings_from(parsed("--slots", "32")).pace.batch_knee == 32


def test_the_documentation_lists_every_option() -> None:
    documented = re.findall(r"^\| `(--[a-z-]+)`", DOCUMENTATION.read_text(encoding="utf-8"), re.MULTILINE)
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    assert documented == re.findall(r"^  (--[a-z-]+)", parser.format_help(), re.MULTILINE)


@pytest.mark.parametrize(
    ("option", "value", "advice"),
    [
        ("--ttft", "50", "needs a unit"),
        ("--itl", "soon", "number with a unit"),
        ("--slots", "0", "whole number from 1"),
        ("--port", "70000", "from 0 to 65535"),
        ("--jitter", "1", "from 0 to 0.9"),
        ("--jitter", "nan", "from 0 to 0.9"),
        ("--jitter", "x", "from 0 to 0.9"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_write(option: str, value: str, advice: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=advice):
        parsed(option, value)


def test_a_port_that_is_taken_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(parsed("--port", str(port))) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@asynccontextmanager
async def process(*words: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Runs the command; yields it and its base URL."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, "--port", "0", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        line = (await child.stdout.readline()).decode()
        yield child, line.split()[3]
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_its_streams_in_order_and_the_process_cleanly(number: signal.Signals) -> None:
    async with process("--ttft", "0", "--itl", "1h") as (child, url):
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode(),
            {"content-type": "application/json"},
        )
        with await asyncio.to_thread(urllib.request.urlopen, request, timeout=WAIT_S) as response:
            first = await asyncio.to_thread(response.readline)
            child.send_signal(number)
            rest = await asyncio.to_thread(response.read)
        assert b'"role":"assistant"' in first
        assert b'"finish_reason":"abort"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        assert await child.wait() == 0
        assert child.stderr is not None
        assert await child.stderr.read() == b""


def test_the_dialect_and_the_limit_of_the_queue_are_options() -> None:
    settings = settings_from(parsed("--dialect", "tgi", "--max-queue", "3"))
    assert (settings.dialect, settings.max_queue) == ("tgi", 3)
    with pytest.raises(argparse.ArgumentError, match="invalid choice"):
        parsed("--dialect", "klingon")


def test_a_limit_for_a_queue_that_has_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parsed("--dialect", "llamacpp", "--max-queue", "3")) == 2
    assert "the queue of llamacpp has no limit" in capsys.readouterr().err
