"""What the real engine is told to do."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

from gateway.demo.llamacpp_server import CHAT_TEMPLATE, parameters, parse

ROOT = Path(__file__).resolve().parents[3]


def test_the_options_become_the_servers_parameters() -> None:
    def common_params() -> SimpleNamespace:
        return SimpleNamespace(
            model=SimpleNamespace(path=""),
            cpuparams=SimpleNamespace(n_threads=0),
            cpuparams_batch=SimpleNamespace(n_threads=0),
        )

    options = parse(["--model", "m.gguf", "--alias", "m", "--slots", "3", "--threads", "4", "--context", "99"])
    wanted = parameters(SimpleNamespace(CommonParams=common_params), options)
    assert (wanted.model.path, wanted.model_alias) == ("m.gguf", {"m"})
    assert (wanted.hostnames, wanted.port) == (["127.0.0.1"], 0)
    assert (wanted.n_parallel, wanted.n_ctx) == (3, 99)
    assert (wanted.cpuparams.n_threads, wanted.cpuparams_batch.n_threads) == (4, 4)
    assert wanted.chat_template == CHAT_TEMPLATE.read_text()


def test_the_chat_template_knows_tools() -> None:
    template = CHAT_TEMPLATE.read_text()
    assert "<tool_call>" in template
    assert "<tool_response>" in template


def test_the_wheel_brings_the_chat_template(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert f"gateway/demo/{CHAT_TEMPLATE.name}" in archive.namelist()
