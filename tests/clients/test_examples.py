"""The programs of ``examples/`` against Weir: over an engine that speaks OpenAI's API, and over one that does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import Front
from tests.clients.dialects import LACKS, REAL
from tests.clients.running import CLIENTS_PYTHON, ROOT, output_of
from tests.live.real_engine import CHOSEN

EXAMPLES = ROOT / "examples"
PYTHON = Path(sys.executable)

needs_aiohttp = pytest.mark.skipif(not CLIENTS_PYTHON.exists(), reason="aiohttp is missing: make setup-clients")
over_two_dialects = pytest.mark.parametrize("model", ("vllm", "ollama") if CHOSEN == "llamacpp" else (REAL,))


async def run_example(program: str, weir: Front, model: str, home: Path, *options: str, python: Path = PYTHON) -> str:
    command: tuple[str | Path, ...] = (
        python,
        EXAMPLES / program,
        "--base-url",
        weir.base_url,
        "--model",
        model,
        *options,
    )
    return await output_of(command, home)


@over_two_dialects
async def test_one_call_completes_a_text_in_several_ways(weir: Front, model: str, tmp_path: Path) -> None:
    choices = 1 if "choices" in LACKS.get(model, ()) else 2
    printed = await run_example("sync_completion.py", weir, model, tmp_path, "--n", str(choices), "Rivers carry")
    texts, _, usage = printed.rstrip().rpartition("\n")
    found = re.findall(r"^\[(\d)\] Rivers carry.+", texts, re.MULTILINE)
    assert CHOSEN == "vllm" or len(texts.splitlines()) == choices  # a real model's text may have lines of its own
    assert found == [str(index) for index in range(choices)]
    assert re.fullmatch(r"\d+ prompt tokens, [1-9]\d* completion tokens", usage)


@over_two_dialects
async def test_a_streamed_completion_is_measured(weir: Front, model: str, tmp_path: Path) -> None:
    printed = await run_example("streaming_completion.py", weir, model, tmp_path, "--max-tokens", "12", "Rivers carry")
    *lines, ttft, speed = printed.splitlines()
    assert CHOSEN == "vllm" or len(lines) == 1  # as above
    assert len("".join(lines)) > 12
    assert re.fullmatch(r"TTFT \d+\.\d ms", ttft)
    assert re.fullmatch(r"12 tokens, \d+\.\d tokens/s", speed)


@pytest.mark.clients
@needs_aiohttp
@over_two_dialects
async def test_a_hundred_requests_are_sent_and_measured(weir: Front, model: str, tmp_path: Path) -> None:
    printed = await run_example("load_100.py", weir, model, tmp_path, python=CLIENTS_PYTHON)
    sent, mean, p99, rate = printed.splitlines()
    assert re.fullmatch(r"100 of 100 requests succeeded in \d+\.\d+ s, 20 at once", sent)
    assert re.fullmatch(r"mean latency \d+\.\d ms", mean)
    assert re.fullmatch(r"P99 latency \d+\.\d ms", p99)
    assert re.fullmatch(r"\d+\.\d requests/s", rate)
    assert await weir.outcomes({model: 100}) == {model: ["ok"] * 100}


@pytest.mark.parametrize("program", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_says_how_it_is_used(program: str) -> None:
    text = (EXAMPLES / program).read_text(encoding="utf-8")
    assert re.search(rf"^Usage: python examples/{program} ", text, re.MULTILINE)


@pytest.mark.clients
@needs_aiohttp
def test_the_load_fails_if_a_request_does() -> None:
    nobody = "http://127.0.0.1:9/v1"
    command = (str(CLIENTS_PYTHON), str(EXAMPLES / "load_100.py"), "--base-url", nobody, "--requests", "2")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "0 of 2 requests succeeded" in done.stdout
