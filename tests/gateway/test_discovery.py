"""``weir serve`` without a file: which engines are found, and what is made of them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from adapters import ADAPTERS
from gateway.config import Config
from gateway.probing import discovery
from gateway.probing.discovery import PORTS, discover
from gateway.probing.engine_detection import MOST_QUESTIONS
from tests.fakes.gateway import running_gateway
from tests.fakes.named_engines import ENGINES
from tests.fakes.named_engines import engine as named_engine
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    head,
    json_answer,
    pause,
    raw,
    silent_listener,
    unused_port,
)


def models(*names: object, owned_by: str = "vllm") -> Script:
    data = [{"id": name, "object": "model", "created": 1, "owned_by": owned_by} for name in names]
    return json_answer({"object": "list", "data": data})


def engine(*names: object, **paths: Script) -> ScriptedUpstream:
    """One that lists these models; keyword arguments are more paths, with _ for /."""
    plain: dict[str, Script] = {"/v1/models": models(*names)}
    plain |= {"/" + path.replace("__", "/"): script for path, script in paths.items()}
    return ScriptedUpstream(chat_stream(), plain=plain)


async def found_on(
    monkeypatch: pytest.MonkeyPatch, *ports: int, listen: str = "127.0.0.1:0", probe_s: float = WAIT_S
) -> Config:
    monkeypatch.setattr(discovery, "PORTS", ports)
    monkeypatch.setattr(discovery, "PROBE_S", probe_s)
    monkeypatch.setattr(discovery, "LOOK_S", MOST_QUESTIONS * probe_s)
    return await discover(listen)


def endpoints(config: Config) -> dict[str, list[tuple[str, str, str | None]]]:
    return {
        name: [(endpoint.url, endpoint.engine, endpoint.model) for endpoint in pool.endpoints]
        for name, pool in config.pools.items()
    }


def test_the_usual_ports_are_looked_at() -> None:
    assert {8000, 8080, 30000, 11434, 3000, 8088} <= set(PORTS)
    assert len(set(PORTS)) == len(PORTS)


async def test_each_model_an_engine_lists_is_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine("org/a", "b:7b") as u:
        config = await found_on(monkeypatch, unused_port(), u.port, unused_port())
        assert endpoints(config) == {name: [(u.url, "vllm", name)] for name in ("org/a", "b:7b")}
        assert config.listen == "127.0.0.1:0"
        told = capsys.readouterr().err
        assert all(word in told for word in ("vllm 0.33.0", u.url, "org/a", "b:7b"))


async def test_engines_that_list_the_same_model_share_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine("m") as a, engine("m", "n") as b:
        config = await found_on(monkeypatch, a.port, b.port)
        assert endpoints(config) == {"m": [(a.url, "vllm", "m"), (b.url, "vllm", "m")], "n": [(b.url, "vllm", "n")]}
        ids = [endpoint.id for pool in config.pools.values() for endpoint in pool.endpoints]
        assert len(set(ids)) == 3


LLAMACPP: Script = json_answer(
    {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp"}]}, 200, ("server", "llama.cpp")
)
KINDS: dict[str, tuple[dict[str, Script], str, str]] = {
    "vllm": ({"/v1/models": models("m")}, "vllm", "0.33.0"),
    "llamacpp": (
        {"/v1/models": LLAMACPP, "/props": json_answer({"build_info": "b1234"}, 200, ("server", "llama.cpp"))},
        "llamacpp",
        "b1234",
    ),
    "sglang": (
        {
            "/v1/models": models("m", owned_by="sglang"),
            "/model_info": json_answer({}),
            "/server_info": json_answer({"version": "0.5"}),
        },
        "sglang",
        "0.5",
    ),
    "another": ({"/v1/models": models("m", owned_by="somebody")}, "openai", ""),
}


@pytest.mark.parametrize("name", ENGINES)
async def test_each_engine_is_found_under_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, version, models = ENGINES[name]
    async with named_engine(name) as u:
        config = await found_on(monkeypatch, u.port)
        dialect = name if name in ADAPTERS else "openai"
        assert endpoints(config) == {model: [(u.url, dialect, model)] for model in models}
        assert f"found {name} {version}".strip() in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_is_recognised(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, name, version = KINDS[kind]
    async with ScriptedUpstream(chat_stream(), plain=plain) as u:
        config = await found_on(monkeypatch, u.port)
        assert endpoints(config) == {"m": [(u.url, name, "m")]}
        assert f"{name} {version}".strip() in capsys.readouterr().err


async def test_the_port_that_weir_listens_on_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine("m") as own, engine("m") as other:
        config = await found_on(monkeypatch, own.port, other.port, listen=f"127.0.0.1:{own.port}")
        assert endpoints(config) == {"m": [(other.url, "vllm", "m")]}
        assert own.probes == []


async def test_nothing_found_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    port = unused_port()
    with pytest.raises(SystemExit) as told:
        await found_on(monkeypatch, port)
    message = str(told.value)
    assert all(words in message for words in (str(port), "weir serve -c", "weir engine"))


ODD: dict[str, Script] = {
    "a web page": [head(200, "html", length=14), raw(b"<html></html>\n")],
    "an error": json_answer({"detail": "no"}, 404),
    "a list": json_answer([]),
    "no data": json_answer({"object": "list"}),
    "data that is none": json_answer({"data": {"id": "m"}}),
    "entries that are none": json_answer({"data": ["m"]}),
    "an entry without an id": json_answer({"data": [{"name": "m"}]}),
    "no models": json_answer({"data": []}),
    "null": json_answer(None),
}


@pytest.mark.parametrize("odd", ODD)
async def test_what_is_no_engine_is_passed_over(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedUpstream(chat_stream(), plain={"/v1/models": ODD[odd]}) as page, engine("m") as u:
        config = await found_on(monkeypatch, page.port, u.port)
        assert endpoints(config) == {"m": [(u.url, "vllm", "m")]}


@pytest.mark.parametrize("name", ["a\nb", "", " m ", "\x00", None, 7])
async def test_a_model_name_that_no_pool_can_have_stops_nothing(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(name, "good") as u:
        config = await found_on(monkeypatch, u.port)
        assert "good" in config.pools


async def test_a_port_that_never_answers_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine("m") as u, engine("x", v1__models=[pause(60)]) as silent:
        with silent_listener() as deaf:
            began_s = time.monotonic()
            config = await found_on(monkeypatch, deaf, silent.port, u.port, probe_s=2.0)
            assert endpoints(config) == {"m": [(u.url, "vllm", "m")]}
            assert time.monotonic() - began_s < WAIT_S, "a bound on hanging, not on speed"


async def test_what_is_found_can_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine("org/a") as u:
        config = await found_on(monkeypatch, u.port)
        pools = {
            name: {"endpoints": [{"url": e.url, "engine": e.engine, "model": e.model} for e in pool.endpoints]}
            for name, pool in config.pools.items()
        }
        async with running_gateway(json.dumps({"pools": pools})) as gw:
            assert (await gw.post(r0(model="org/a"))).done
            assert u.last.json()["model"] == "org/a"


async def test_a_listen_address_that_is_none_is_told_as_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised, it is told in words and not as a traceback."""
    from gateway.__main__ import main

    async with engine("m") as u:
        monkeypatch.setattr(discovery, "PORTS", (u.port,))
        monkeypatch.setattr("uvloop.run", asyncio.run)
        status = await asyncio.to_thread(_status, main, ["serve", "--listen", "nonsense"])
        assert status not in (0, None)


def _status(main: Any, argv: list[str]) -> object:
    try:
        return main(argv)
    except SystemExit as stopped:
        return stopped.code
