"""Probes end, whatever an engine does with them, and are made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from gateway.config import Config
from gateway.endpoint import Endpoint
from gateway.fleet import Fleet
from gateway.probing.engine_detection import Questioner
from gateway.probing.probes import Probes
from gateway.upstream.native import NativeUpstream
from tests.fakes.named_engines import http
from tests.fakes.probing import probing as one_probed
from tests.fakes.script import wire
from tests.fakes.scripted import ScriptedUpstream, chat_stream, eventually

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n"


class Dripping:
    """An engine that sends a beginning and then a byte now and then, without end.

    Attributes:
        asked: Requests so far.
    """

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._open = 0
        self.asked = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            await eventually(lambda: self._open == 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(self._beginning)
            while not reader.at_eof():
                writer.write(b"a")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.005)
        writer.transport.abort()
        self._open -= 1


@asynccontextmanager
async def probing(*urls: str, engine: str = "vllm", **health: Any) -> AsyncGenerator[list[Endpoint]]:
    """Probes a pool of these endpoints, and another that is well, so that none is the last."""
    rules = {"interval": "10ms", "timeout": "20s", "failures": 2, "eject": "1ms", **health}
    async with ScriptedUpstream(chat_stream()) as well:
        endpoints = [{"url": url, "engine": engine} for url in (*urls, well.url)]
        fleet = Fleet(Config.model_validate({"pools": {"m": {"endpoints": endpoints, "health": rules}}}))
        probes = Probes(fleet)
        probes.start()
        try:
            yield list(fleet.pools["m"].endpoints.values())
        finally:
            await probes.stop()
            await fleet.aclose()


async def test_a_head_that_drips_in_is_a_probe_that_failed() -> None:
    engine = Dripping(b"HTTP/1.1 200 OK\r\nx: ")
    async with engine.running(), probing(engine.url, timeout="50ms") as (endpoint, _):
        await eventually(lambda: not endpoint.healthy)
        assert "within 0.05 s" in endpoint.health.reason
        await eventually(lambda: engine.asked > 3)


async def test_a_body_that_never_ends_holds_no_probe() -> None:
    engine = Dripping(HEAD)
    async with engine.running(), probing(engine.url, timeout="1s") as (endpoint, _):
        await eventually(lambda: engine.asked > 3)
        assert endpoint.healthy


async def test_an_engine_that_tells_its_name_drop_by_drop_is_probed_all_the_same() -> None:
    engine = Dripping(HEAD)
    async with engine.running(), probing(engine.url, engine="auto", timeout="1s") as (endpoint, _):
        await eventually(lambda: engine.asked > 5)
        assert endpoint.healthy
        assert not endpoint.recognised


async def test_an_engine_behind_a_forward_proxy_is_probed_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://engine.test:8000"
    async with ScriptedUpstream(chat_stream(), plain={f"{url}/health": [wire(http(b""))]}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with one_probed(url, "vllm", transport="httpx2") as endpoint:
            await eventually(lambda: [request.target for request in proxy.probes].count(f"{url}/health") > 1)
            assert not endpoint.health.misses


@pytest.mark.parametrize("fault", [RuntimeError("a\nb"), KeyError("prompt"), ValueError("odd")])
async def test_what_nobody_foresaw_counts_as_a_failure_and_ends_no_watch(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = [True]
    send = NativeUpstream.send

    async def fails(upstream: NativeUpstream, *args: Any, **kwargs: Any) -> Any:
        if failing[0]:
            raise fault
        return await send(upstream, *args, **kwargs)

    async with ScriptedUpstream(chat_stream()) as u:
        monkeypatch.setattr(NativeUpstream, "send", fails)
        async with probing(u.url) as endpoints:
            await eventually(lambda: sum(e.healthy for e in endpoints) == 1)
            sick = next(e for e in endpoints if not e.healthy)
            assert type(fault).__name__ in sick.health.reason
            failing[0] = False
            await eventually(lambda: sick.healthy)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2  # once for each endpoint, however often
    assert all(str(fault) not in line for line in told)


async def test_a_fault_in_recognising_an_engine_is_no_failure_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Questioner] = []
    words = "what the engine said"

    async def fails(questioner: Questioner) -> None:
        asked.append(questioner)
        raise RecursionError(words)

    monkeypatch.setattr("gateway.probing.probes.recognise", fails)
    async with ScriptedUpstream(chat_stream()) as u, probing(u.url, engine="auto") as (endpoint, _):
        await eventually(lambda: len(asked) > 6)
        assert endpoint.healthy
    assert words not in caplog.text
