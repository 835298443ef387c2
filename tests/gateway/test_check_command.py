"""``weir check``."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.commands import check as check_command
from tests.fakes.certificate import certified
from tests.fakes.named_engines import ENGINES, cards, http
from tests.fakes.named_engines import engine as named_engine
from tests.fakes.scripted import unused_port

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


# --- what answers

MODEL = "smollm2-135m"  # of the recorded ones


class Served:
    """A configuration of endpoints by id, each the URL and what the file calls its engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def checked(self, **endpoints: tuple[str, ...]) -> int:
        """``("url", "engine")``, or with the engine's model behind them: ``smollm2-135m`` if it is not said."""
        named = ((name, (*of, MODEL)[:3]) for name, of in endpoints.items())
        made = [{"id": name, "url": url, "engine": engine, "model": model} for name, (url, engine, model) in named]
        (self._folder / "weir.yaml").write_text(json.dumps({"pools": {"m": {"endpoints": made}}}))
        return await asyncio.to_thread(check, "--probe")


def rows(out: str) -> dict[str, list[str]]:
    """The cells of what answers, by endpoint."""
    lines = out.partition("What answers:")[2].strip().splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines[1:] if line.strip()}


@pytest.mark.parametrize("name", ENGINES)
async def test_each_engine_is_told_by_name(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, version, models = ENGINES[name]
    async with named_engine(name) as u:
        assert await Served(folder).checked(one=(u.url, "auto", models[0])) == 0
        assert rows(capsys.readouterr().out) == {"one": [u.url, name, version or "-", *", ".join(models).split()]}


async def test_a_wrong_engine_is_a_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with named_engine("tgi") as tgi, named_engine("vllm") as vllm, named_engine("openai") as other:
        engines = {
            "a": (tgi.url, "vllm"),
            "b": (vllm.url, "vllm"),
            "c": (other.url, "sglang"),
            "d": (tgi.url, "openai"),
        }
        assert await Served(folder).checked(**engines) == 1
        out = capsys.readouterr().out
        assert [cells[1] for cells in list(rows(out).values())[:4]] == ["tgi", "vllm", "openai", "tgi"]
        assert out.endswith(
            "pools.m.endpoints[0].engine: is vllm, but tgi answers there: write tgi, or auto\n1 problem\n"
        )


async def test_an_endpoint_that_does_not_answer_is_a_problem_and_hides_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    async with named_engine("vllm") as u:
        assert await Served(folder).checked(gone=(url, "vllm"), one=(u.url, "auto")) == 1
        out = capsys.readouterr().out
        assert rows(out)["one"][1] == "vllm"
        assert f"pools.m.endpoints[0]: no engine was recognised at {url}" in out


async def test_a_long_list_of_models_is_cut_and_odd_names_stay_on_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = http(cards("vllm", "a\nb", *"cdefgh"))
    async with named_engine("vllm", v1__models=listed) as u:
        assert await Served(folder).checked(one=(u.url, "vllm", "c")) == 0
        assert "a b, c, d, e, f, and 2 more\n" in capsys.readouterr().out


async def test_without_being_asked_nothing_is_connected_to(folder: Path) -> None:
    async with named_engine("vllm") as u:
        (folder / "weir.yaml").write_text(json.dumps({"pools": {"m": {"endpoints": [u.url]}}}))
        assert await asyncio.to_thread(check) == 0
        assert u.connections == 0


@pytest.fixture
def trusted_nowhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    return certified(tmp_path_factory.mktemp("tls"))


async def test_why_an_endpoint_does_not_answer_is_told(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    trusted_nowhere: tuple[ssl.SSLContext, Path],
) -> None:
    tls, certificate = trusted_nowhere
    nobody = f"http://127.0.0.1:{unused_port()}"
    server = await asyncio.start_server(_lists_m, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await Served(folder).checked(a=(nobody, "auto"), b=(url, "auto")) == 1
    told = capsys.readouterr().out
    assert f"pools.m.endpoints[0]: no engine was recognised at {nobody}: cannot connect: Connect" in told
    assert f"pools.m.endpoints[1]: no engine was recognised at {url}: cannot connect: certificate verify failed" in told
    assert "SSL_CERT_FILE" in told
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert await Served(folder).checked(b=(url, "auto", "m")) == 0
    server.close()


async def _lists_m(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(http(cards("vllm", "m")))
    await writer.drain()
    writer.close()


# --- the engines' models


async def test_a_model_that_an_engine_does_not_have_is_a_problem(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with named_engine("vllm") as vllm, named_engine("ollama") as ollama:
        assert await Served(folder).checked(a=(vllm.url, "auto", "x"), b=(ollama.url, "ollama", "llama3")) == 1
        out = capsys.readouterr().out
        assert (
            'pools.m.endpoints[0].model: vllm has no model "x" and refuses every request for it; it has smollm2-135m'
        ) in out
        assert (
            'pools.m.endpoints[1].model: ollama has no model "llama3" and refuses every request for it;'
            " it has qwen3:0.6b, llama3:8b"
        ) in out
        assert out.endswith("2 problems\n")


async def test_the_pools_name_is_the_model_of_an_endpoint_that_has_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with named_engine("vllm") as u:
        (folder / "weir.yaml").write_text(json.dumps({"pools": {"m": {"endpoints": [u.url]}}}))
        assert await asyncio.to_thread(check, "--probe") == 1
        assert 'pools.m.endpoints[0].model: vllm has no model "m"' in capsys.readouterr().out


async def test_a_model_that_is_only_not_listed_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with named_engine("openai") as u, named_engine("vllm") as vllm:
        engines = {"a": (u.url, "openai", "x"), "b": (vllm.url, "openai", "x"), "c": (u.url, "openai", "n")}
        assert await Served(folder).checked(**engines) == 0
        out = capsys.readouterr().out
        assert (
            'warning: pools.m.endpoints[0].model: the engine does not list "x", and may refuse it; it lists m, n\n'
        ) in out
        assert 'warning: pools.m.endpoints[1].model: the engine does not list "x"' in out
        assert "endpoints[2]" not in out


@pytest.mark.parametrize("name", ["tgi", "sglang", "lightllm", "llamacpp"])
async def test_engines_that_take_any_name_are_not_asked_for_theirs(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with named_engine(name) as u:
        assert await Served(folder).checked(one=(u.url, "auto", "any")) == 0
        assert "any" not in capsys.readouterr().out.partition("What answers:")[2]


async def test_the_names_of_an_engine_stay_on_one_line_and_are_few(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with named_engine("vllm", v1__models=http(cards("vllm", "a\nb", *"cdefgh"))) as u:
        assert await Served(folder).checked(one=(u.url, "auto", "x")) == 1
        assert "it has a b, c, d, e, f, and 2 more\n" in capsys.readouterr().out
