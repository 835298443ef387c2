"""``weir check``."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import check_command

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "weir.yaml"
VALIDATOR: Any = importlib.import_module("jsonschema").Draft202012Validator  # the package has no types


def check(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    check_command.add_arguments(parser)
    return check_command.run(parser.parse_args(arguments))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_valid_file_is_answered_with_what_it_would_serve(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "weir.yaml").write_text(
        "pools:\n"
        "  m:\n"
        "    aliases: [default]\n"
        "    endpoints: [http://a:8000/v1, {url: http://b, engine: vllm, model: x/y, api_key: hidden}]\n"
        "  long-name:\n"
        "    endpoints: [http://c]\n"
    )
    assert check() == 0
    assert capsys.readouterr().out.splitlines() == [
        "weir.yaml is valid. It would serve on http://127.0.0.1:8080:",
        "",
        "MODEL      ALIASES  ENDPOINT     ENGINE  URL            ENGINE'S MODEL",
        "m          default  m-0          auto    http://a:8000  m",
        "                    m-1          vllm    http://b       x/y",
        "long-name  -        long-name-0  auto    http://c       long-name",
    ]


def test_every_mistake_is_a_line_and_the_exit_code_is_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "weir.yaml").write_text("lisen: x\npools:\n  x:\n    endpoints: [http://u]\n    timeout: 2s\n")
    assert check() == 1
    assert capsys.readouterr().out.splitlines() == [
        'weir.yaml:1: lisen: unknown key, did you mean "listen"?',
        'weir.yaml:5: pools.x.timeout: unknown key, did you mean "timeouts"?',
        "2 mistakes; every key is in docs/configuration.md",
    ]


@pytest.mark.usefixtures("folder")
def test_a_missing_file_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-c", "other.yaml") == 1
    told = capsys.readouterr().out
    assert told.startswith("other.yaml: there is no such file: name another with -c FILE, or create it")
    assert "endpoints" in told


def test_the_example_is_valid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARE_API_KEY", raising=False)
    assert check("-c", str(EXAMPLE)) == 0
    assert "llama-3-8b" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_the_schema_is_printed_without_any_file_and_validates_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    VALIDATOR.check_schema(schema)
    VALIDATOR(schema).validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
