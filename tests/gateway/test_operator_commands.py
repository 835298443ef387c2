"""``weir endpoints``, ``weir drain`` and ``weir readmit`` against a gateway that runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.__main__ import main
from tests.fakes.gateway import RunningGateway, config, running_gateway

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
    assert "no Weir answers at http://127.0.0.1:9" in capsys.readouterr().err


def test_an_open_port_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text(json.dumps({**json.loads(TEXT), "listen": "127.0.0.1:0"}))
    assert main(["endpoints", "-c", str(file)]) == 1
    assert "--url" in capsys.readouterr().err
