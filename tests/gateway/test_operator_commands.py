"""``weir endpoints``, ``weir drain`` and ``weir readmit`` against a gateway that runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.__main__ import main
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.scripted import Script, ScriptedUpstream, head, json_answer, raw

ENDPOINTS = ({"url": "http://127.0.0.1:9", "id": "gpu/1"}, {"url": "http://127.0.0.1:9/x", "id": "gpu:2"})
TEXT = config(*ENDPOINTS)
TOKEN = config(*ENDPOINTS, admin={"token": "t0ken"})


async def weir(*argv: str) -> int:
    return await asyncio.to_thread(main, [*argv])


async def healths(gw: RunningGateway) -> list[str]:
    return [e["health"] for e in (await gw.get("/weir/endpoints")).json()]


async def test_an_endpoint_is_drained_and_readmitted(capsys: pytest.CaptureFixture[str]) -> None:
    async with running_gateway(TEXT) as gw:
        assert await weir("drain", "gpu/1", "--url", gw.url) == 0
        assert await healths(gw) == ["draining", "healthy"]
        assert await weir("endpoints", "--url", gw.url, "--json") == 0
        assert await weir("readmit", "gpu/1", "--url", gw.url + "/") == 0
        assert await healths(gw) == ["healthy", "healthy"]
        assert "gpu/1 drains" in gw.logs.text
    assert capsys.readouterr().err == ""


async def test_the_list_is_a_table_for_people() -> None:
    async with running_gateway(TEXT) as gw:
        await weir("drain", "gpu:2", "--url", gw.url)
        assert await weir("endpoints", "--url", gw.url) == 0
        lines = [line.split() for line in gw.logs.text.splitlines()]
        assert ["gpu/1", "m", "vllm", "healthy", "0"] in lines
        assert any(line[:4] == ["gpu:2", "m", "vllm", "draining"] for line in lines)


async def test_the_configuration_names_address_and_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(TOKEN) as gw:
        file = tmp_path / "weir.yaml"
        file.write_text(json.dumps({**json.loads(TOKEN), "listen": f"0.0.0.0:{gw.port}"}))
        assert await weir("endpoints", "-c", str(file)) == 0
        monkeypatch.chdir(tmp_path)
        assert await weir("drain", "gpu/1") == 0
        assert await weir("endpoints", "--url", gw.url, "--token", "t0ken") == 0


async def test_refusals_are_told() -> None:
    async with running_gateway(TOKEN) as gw:
        assert await weir("endpoints", "--url", gw.url) == 1
        assert "give it with --token" in gw.logs.text
        assert await weir("drain", "nobody", "--url", gw.url, "--token", "t0ken") == 1
        assert "there is no endpoint nobody; there are gpu/1, gpu:2" in gw.logs.text


@pytest.mark.parametrize("command", [["endpoints"], ["drain", "x"], ["readmit", "x"]])
def test_where_nobody_answers_it_says_where_it_asked(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--url", "http://127.0.0.1:9"]) == 1
    assert "no Weir answers at http://127.0.0.1:9: Connection refused;" in capsys.readouterr().err


def test_an_open_port_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text(json.dumps({**json.loads(TEXT), "listen": "127.0.0.1:0"}))
    assert main(["endpoints", "-c", str(file)]) == 1
    assert "--url" in capsys.readouterr().err


SECRETS: dict[str, Any] = {
    "pools": {"m": {"endpoints": [{"url": "http://${WEIR_TEST_HOST}:1", "api_key": "${WEIR_TEST_KEY}"}]}},
    "telemetry": {"otlp_endpoint": "${WEIR_TEST_COLLECTOR}"},
}


async def test_the_engines_secrets_are_not_needed_to_reach_the_gateway(tmp_path: Path) -> None:
    async with running_gateway(TOKEN) as gw:
        file = tmp_path / "weir.yaml"
        file.write_text(json.dumps({**SECRETS, "listen": f"127.0.0.1:{gw.port}", "admin": {"token": "t0ken"}}))
        for command in (["endpoints"], ["drain", "gpu/1"], ["readmit", "gpu/1"]):
            assert await weir(*command, "-c", str(file)) == 0


async def test_a_token_of_the_command_line_needs_none_of_the_file(tmp_path: Path) -> None:
    async with running_gateway(TOKEN) as gw:
        file = tmp_path / "weir.yaml"
        admin = {"token": "${WEIR_TEST_TOKEN}"}
        file.write_text(json.dumps({**SECRETS, "listen": f"127.0.0.1:{gw.port}", "admin": admin}))
        assert await weir("endpoints", "-c", str(file)) == 1
        assert "admin.token: environment variable WEIR_TEST_TOKEN is not set" in gw.logs.text
        assert await weir("endpoints", "-c", str(file), "--token", "t0ken") == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("amdin: {token: x}", 'weir.yaml:1: amdin: unknown key, did you mean "admin"?'),
        ("admin: {tokn: x}", 'weir.yaml:1: admin.tokn: unknown key, did you mean "token"?'),
        ("listen: here", "weir.yaml:1: listen: must be HOST:PORT"),
        ("admin: [", "YAML syntax"),
        ("- a", "must be a mapping"),
    ],
)
def test_mistakes_in_what_is_read_are_told(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weir.yaml").write_text(text)
    assert main(["endpoints"]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", [["endpoints"], ["drain", "x"]])
@pytest.mark.parametrize(
    "answer",
    [
        [head(200, "html", length=14), raw(b"<html></html>\n")],
        json_answer({"detail": "Not Found"}, 404),
        json_answer({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, 404),
        json_answer({"error": "no"}, 404),
        json_answer({"object": "list", "data": []}),
        json_answer(["a"]),
        json_answer(None),
        json_answer({"error": {"message": "Invalid API key"}}, 401),
    ],
)
async def test_a_server_that_is_no_weir_is_told_as_such(command: list[str], answer: Script) -> None:
    paths = {"/weir/endpoints": answer, "/weir/endpoints/x/drain": answer}
    async with ScriptedUpstream(answer, plain=paths) as other, running_gateway(TEXT) as gw:
        assert await weir(*command, "--url", other.url) == 1
        assert f"what answers at {other.url} is no Weir, or not where its /weir/* is" in gw.logs.text


async def test_the_listener_of_the_clients_is_told_from_that_of_the_operators() -> None:
    text = config(*ENDPOINTS, admin={"listen": "127.0.0.1:0"})
    async with running_gateway(text) as gw:
        assert await weir("endpoints", "--url", gw.url) == 1
        assert f"what answers at {gw.url} is no Weir, or not where its /weir/* is" in gw.logs.text
        assert "admin.listen" in gw.logs.text


@pytest.mark.parametrize("arguments", [("--token", "tök"), ("--url", "127.0.0.1:8080"), ("--url", "http://[")])
def test_what_cannot_be_asked_with_is_told(arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["endpoints", "--url", "http://127.0.0.1:9", *arguments]) == 1
    assert "no Weir answers at" in capsys.readouterr().err
