"""Every engine is told from what it says, and nothing that a server says or does not say is a fault or a wait."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping

import pytest

from adapters.types import EngineName
from gateway.probing.engine_detection import (
    ANSWER_BYTES,
    MOST_QUESTIONS,
    Questioner,
    Recognised,
    plain_question,
    recognise,
)
from tests.fakes.named_engines import ENGINES, cards, cut, engine, http, plain
from tests.fakes.patience import WAIT_S
from tests.fakes.questions import fresh_upstream
from tests.fakes.script import Script, eof, hang, head, pause, raw, rst, wire
from tests.fakes.scripted import ScriptedUpstream, chat_stream, unused_port

NAMES = sorted(ENGINES)


async def asked(url: str, timeout_s: float = WAIT_S, *headers: tuple[bytes, bytes]) -> Recognised | None:
    upstream = fresh_upstream(url)
    try:
        return await recognise(
            Questioner(upstream, lambda path, more: plain_question(path, (*headers, *more)), timeout_s)
        )
    finally:
        await upstream.aclose()


async def found(paths: Mapping[str, Script], timeout_s: float = WAIT_S) -> Recognised | None:
    async with ScriptedUpstream(chat_stream(), plain={**plain({}), **paths}) as u:
        return await asked(u.url, timeout_s)


@pytest.mark.parametrize("name", NAMES)
async def test_an_engine_is_told_with_its_version_and_its_models(name: EngineName) -> None:
    _, version, models = ENGINES[name]
    async with engine(name) as u:
        assert await asked(u.url) == Recognised(name, version, models)
        assert len(u.probes) <= MOST_QUESTIONS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 1000])
async def test_how_the_network_cuts_an_answer_does_not_matter(name: EngineName, size: int) -> None:
    said, version, models = ENGINES[name]
    assert await found({path: cut(data, size) for path, data in said.items()}) == Recognised(name, version, models)


@pytest.mark.parametrize("name", [name for name in NAMES if ENGINES[name][1]])
async def test_an_engine_that_keeps_its_version_to_itself_is_still_told(name: EngineName) -> None:
    said = {path: data for path, data in ENGINES[name][0].items() if path in ("/v1/models", "/")}
    if name == "tgi":
        said = {**said, "/info": http({"model_id": "m", "max_total_tokens": 4096})}
    async with ScriptedUpstream(chat_stream(), plain=plain(said)) as u:
        assert await asked(u.url) == Recognised(name, "", ENGINES[name][2])


async def test_an_older_sglang_tells_its_version_elsewhere() -> None:
    paths = {"/v1/models": cards("sglang", "m"), "/get_server_info": {"version": "0.4.1"}}
    assert await found({path: [wire(http(body))] for path, body in paths.items()}) == Recognised(
        "sglang", "0.4.1", ("m",)
    )


async def test_an_older_lightllm_lists_no_models() -> None:
    load = http({"current_load": [0.1], "logical_max_load": [0.2], "dynamic_max_load": [0.2]})
    assert await found({"/token_load": [wire(load)]}) == Recognised("lightllm")


async def test_an_ollama_without_models_is_told() -> None:
    async with engine("ollama", v1__models=http({"object": "list", "data": None})) as u:
        assert await asked(u.url) == Recognised("ollama", "0.33.0")


@pytest.mark.parametrize("status", ["503 Service Unavailable", "401 Unauthorized"])
async def test_a_llamacpp_that_loads_or_wants_a_key_is_told_by_its_header(status: str) -> None:
    refused = http({"error": {"code": 503, "message": "Loading model"}}, "Server: llama.cpp", status=status)
    assert await found({"/v1/models": [wire(refused)]}) == Recognised("llamacpp")


async def test_an_ollama_that_refuses_a_foreign_host_is_not_told() -> None:
    refused = http(b"", status="403 Forbidden")
    assert await found({path: [wire(refused)] for path in ("/", "/v1/models", "/api/version")}) is None


async def test_the_credential_goes_with_every_question() -> None:
    async with engine("vllm") as u:
        await asked(u.url, WAIT_S, (b"authorization", b"Bearer k"))
        assert [probe.target for probe in u.probes] == ["/v1/models", "/version"]
        assert all(probe.header("authorization") == b"Bearer k" for probe in u.probes)


# --- what is no engine, and what goes wrong


@pytest.mark.parametrize(
    "listed",
    [
        http({"detail": "Not Found"}, status="404 Not Found"),
        http({"error": "no"}, status="500 Internal Server Error"),
        http({"data": []}, status="404 Not Found"),
        http(b"<html></html>", kind="text/html"),
        http(b""),
        http(b"\xff\xfe"),
        http(b"[" * 200_000),
        http(b"9" * 5000),
        http([]),
        http(None),
        http({"object": "list"}),
        http({"data": {"id": "m"}}),
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/v1/models\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: nonsense\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_what_lists_no_models_is_no_engine(listed: bytes) -> None:
    assert await found({"/v1/models": [wire(listed), eof()]}) is None


@pytest.mark.parametrize(
    "cards",
    [[], [None], ["m"], [{}], [{"owned_by": 7}], [{"owned_by": ["vllm"]}], [{"owned_by": None, "id": 7}], [{"id": []}]],
)
async def test_odd_model_cards_name_no_engine_and_no_models(cards: list[object]) -> None:
    assert await found({"/v1/models": [wire(http({"data": cards}))]}) == Recognised("openai")


@pytest.mark.parametrize("version", [b'{"version": 7}', b'{"version": null}', b"[]", b"0.33.0", b"\xff", b""])
async def test_an_odd_version_is_none(version: bytes) -> None:
    listed = http(cards("vllm", "m"))
    assert await found({"/v1/models": [wire(listed)], "/version": [wire(http(version))]}) == Recognised(
        "vllm", "", ("m",)
    )


async def test_long_names_are_cut() -> None:
    paths = {"/v1/models": cards("vllm", "m" * 10_000), "/version": {"version": "1" * 10_000}}
    told = await found({path: [wire(http(body))] for path, body in paths.items()})
    assert told is not None
    assert (len(told.version), len(told.models[0])) == (64, 256)


@pytest.mark.parametrize("info", [{"max_total_tokens": "many"}, {"max_total_tokens": None}, {}, [], "text"])
async def test_another_servers_info_is_no_tgis(info: object) -> None:
    paths = {"/v1/models": cards("m", "m"), "/info": info}
    assert await found({path: [wire(http(body))] for path, body in paths.items()}) == Recognised("openai", "", ("m",))


async def test_a_server_that_nobody_runs_is_none() -> None:
    assert await asked(f"http://127.0.0.1:{unused_port()}") is None


async def test_a_list_that_is_too_long_is_read_no_further() -> None:
    piece = b"x" * 65_536
    endless: Script = [head(200), *([raw(piece)] * 64), hang()]
    async with ScriptedUpstream(chat_stream(), plain={**plain({}), "/v1/models": endless}) as u:
        assert await asked(u.url) == Recognised("openai")
        assert not u.probes[0].finished.is_set(), "what comes after the bound is not waited for"


async def test_a_list_up_to_the_bound_is_read() -> None:
    listed = http(cards("vllm", "m"))
    padding = b" " * (ANSWER_BYTES - len(listed.partition(b"\r\n\r\n")[2]))
    for more, told in ((b"", "vllm"), (b" ", "openai")):
        data = listed.partition(b"\r\n\r\n")[2] + padding + more
        got = await found({"/v1/models": [wire(http(data))]})
        assert got is not None
        assert got.engine == told


async def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    answer = http(bomb, "content-encoding: gzip")
    async with ScriptedUpstream(chat_stream(), plain={**plain({}), "/v1/models": [wire(answer)]}) as u:
        assert await asked(u.url) is None
        assert u.probes[0].header("accept-encoding") == b"identity"


@pytest.mark.parametrize(
    "script",
    [
        [pause(60)],
        [hang()],
        [wire(b"HTTP/1.1 200 OK\r\nx: "), *[wire(b"a"), pause(0.01)] * 500],
        [wire(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"), *[wire(b" "), pause(0.01)] * 500],
    ],
)
async def test_a_server_that_never_ends_is_not_waited_for(script: Script) -> None:
    began_s = time.monotonic()
    assert await found({"/v1/models": script}, timeout_s=0.05) is None
    assert time.monotonic() - began_s < WAIT_S, "a bound on hanging, not on speed"


@pytest.mark.parametrize("script", [[rst()], [wire(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), rst()]])
async def test_a_server_that_breaks_off_is_none(script: Script) -> None:
    assert await found({"/v1/models": script}) is None


@pytest.mark.parametrize("path", ["/info", "/"])
async def test_an_engine_too_busy_for_a_question_is_taken_for_no_other(path: str) -> None:
    said = {**plain(ENGINES["openai"][0]), path: [rst()]}
    assert await found(said) is None


async def test_an_engine_that_breaks_off_later_is_still_told() -> None:
    assert await found({"/v1/models": [wire(http(cards("vllm", "m")))], "/version": [rst()]}) == Recognised(
        "vllm", "", ("m",)
    )


# --- what it means for the configuration


@pytest.mark.parametrize(
    ("configured", "engine", "wrong"),
    [
        ("vllm", "tgi", True),
        ("llamacpp", "ollama", True),
        ("vllm", "vllm", False),
        ("auto", "tgi", False),
        ("openai", "tgi", False),
        ("vllm", "openai", False),
    ],
)
def test_only_an_engine_that_names_itself_contradicts(configured: str, engine: EngineName, wrong: bool) -> None:
    assert Recognised(engine).contradicts(configured) is wrong
