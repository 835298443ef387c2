"""The end of a server: at once when nothing runs, after the drain when something does, and never later."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config.file import parse
from gateway.server import RunningServer, start
from tests.fakes.flown import samples, total
from tests.fakes.gateway import config
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import connect, r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    chat_stream,
    done,
    end,
    eventually,
    fin,
    flood,
    gate,
    hang,
    head,
    tok,
    unused_port,
)
from tests.fakes.slow_client import connect_slow
from tests.fakes.weir_process import ended_well, refused, weir

CHAT = "/v1/chat/completions"


@asynccontextmanager
async def serving(url: str, drain: str | int = "1m", **top: Any) -> AsyncGenerator[RunningServer]:
    text = config(url, listen="127.0.0.1:0", shutdown={"drain": drain}, **top)
    server = await start(parse(text, source="test", environ={}), io.BytesIO())
    try:
        yield server
    finally:
        server.hurry()
        await server.stop()


async def test_a_server_that_does_nothing_stops_without_waiting() -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(u.url) as server, connect(server.port) as idle:
        await idle.send(request_bytes("POST", CHAT, r0()))
        assert (await idle.reply()).done
        async with asyncio.timeout(WAIT_S):
            await server.stop()
            await server.wait()


async def test_the_date_stays_right_and_stopping_does_not_wait_for_the_clock() -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(u.url) as server:
        dates: set[str | None] = set()
        while len(dates) < 2:
            async with connect(server.port) as client:
                await client.send(request_bytes("GET", "/healthz"))
                dates.add((await client.reply(method="GET")).header("date"))
        assert None not in dates


@pytest.mark.parametrize("drain", [0, "50ms"])
async def test_requests_that_outlast_the_drain_are_told_and_ended(
    drain: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.FAREWELL_S", WAIT_S)
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u,
        serving(u.url, drain) as server,
        connect(server.port) as stream,
        connect(server.port) as whole,
        connect(server.port) as half,
    ):
        await stream.send(request_bytes("POST", CHAT, r0()))
        await stream.read_until(b'"content":"a"')
        await whole.send(request_bytes("POST", CHAT, r0(stream=False)))
        await u.arrived(2)
        await half.send(request_bytes("POST", CHAT, r0())[:-3])
        await eventually(lambda: server.app.openai._flights.in_flight == 3)  # pyright: ignore[reportPrivateUsage]
        async with asyncio.timeout(WAIT_S):
            await server.stop()
            reply = await stream.reply()
            assert reply.stream_error is not None
            assert reply.stream_error["code"] == "shutting_down"
            assert reply.stream_error["weir"]["retryable"]
            for client in (whole, half):
                reply = await client.reply()
                assert (reply.status, reply.error["code"]) == (503, "shutting_down")
                assert reply.error["type"] == "service_unavailable_error"
                assert reply.error["weir"]["retryable"]
                assert (reply.header("retry-after"), reply.header("x-should-retry")) == ("1", "true")


async def test_what_a_stop_ends_is_no_fault_and_no_engine_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.FAREWELL_S", WAIT_S)
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u,
        serving(u.url, 0) as server,
        connect(server.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        app = server.app
        await server.stop()
        read = samples(app.metrics.render())
        assert total(read, "weir_requests_total", outcome="shed") == 1
        assert total(read, "weir_requests_total") == 1
        assert total(read, "weir_shed_total", reason="shutting_down") == total(read, "weir_shed_total") == 1
        assert total(read, "weir_endpoint_attempts_total", outcome="cancelled") == 1
        assert total(read, "weir_endpoint_errors_total") == 0
        assert total(read, "weir_endpoint_transitions_total") == 0


async def test_a_client_that_reads_nothing_holds_no_stop() -> None:
    script = [head(200, "sse"), flood(lambda _: tok("x" * 65_536)), hang()]
    async with ScriptedUpstream(script) as u, serving(u.url, 0) as server, connect_slow(server.port) as client:
        await client.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            await server.stop()


async def test_a_drain_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.FAREWELL_S", WAIT_S)
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u,
        serving(u.url) as server,
        connect(server.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        stopping = asyncio.create_task(server.stop())
        await eventually(lambda: server._servers[0].should_exit)  # pyright: ignore[reportPrivateUsage]
        server.hurry()
        async with asyncio.timeout(WAIT_S):
            await stopping
            assert (await client.reply()).stream_error is not None


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
async def test_a_second_signal_does_not_wait_for_running_requests(
    numbers: tuple[signal.Signals, signal.Signals], tmp_path: Path
) -> None:
    port, path = unused_port(), tmp_path / "weir.yaml"
    async with ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u:
        path.write_text(config(u.url, listen=f"127.0.0.1:{port}", shutdown={"drain": "10m"}))
        async with weir("serve", "-c", str(path)) as process:
            await process.says("serving m on")
            async with connect(port) as client:
                await client.send(request_bytes("POST", CHAT, r0()))
                await client.read_until(b'"content":"a"')
                process.signal(numbers[0])
                await process.says("stopping: ")
                process.signal(numbers[1])
                assert await process.ended() == 0
                assert (await client.reply()).stream_error is not None


async def test_a_hangup_that_comes_again_does_not_hurry(tmp_path: Path) -> None:
    """A terminal that closes sends it, and then its shell does."""
    opened = asyncio.Event()
    port, path = unused_port(), tmp_path / "weir.yaml"
    async with ScriptedUpstream([head(200, "sse"), tok("a"), gate(opened), fin("stop"), done(), end()]) as u:
        path.write_text(config(u.url, listen=f"127.0.0.1:{port}", shutdown={"drain": "10m"}))
        async with weir("serve", "-c", str(path)) as process:
            await process.says("serving m on")
            async with connect(port) as client:
                await client.send(request_bytes("POST", CHAT, r0()))
                await client.read_until(b'"content":"a"')
                for _ in range(2):
                    process.signal(signal.SIGHUP)
                    await process.says("stopping: ")
                await refused(port)
                opened.set()
                assert (await client.reply()).done
            await ended_well(process)


async def test_after_a_hangup_a_signal_does_not_wait_for_running_requests(tmp_path: Path) -> None:
    port, path = unused_port(), tmp_path / "weir.yaml"
    async with ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u:
        path.write_text(config(u.url, listen=f"127.0.0.1:{port}", shutdown={"drain": "10m"}))
        async with weir("serve", "-c", str(path)) as process:
            await process.says("serving m on")
            async with connect(port) as client:
                await client.send(request_bytes("POST", CHAT, r0()))
                await client.read_until(b'"content":"a"')
                process.signal(signal.SIGHUP)
                await process.says("another SIGTERM or SIGINT ends them")
                process.signal(signal.SIGTERM)
                assert await process.ended() == 0
                assert (await client.reply()).stream_error is not None


async def test_who_was_started_with_nohup_hears_no_hangup(tmp_path: Path) -> None:
    port, path = unused_port(), tmp_path / "weir.yaml"
    async with ScriptedUpstream(chat_stream()) as u:
        path.write_text(config(u.url, listen=f"127.0.0.1:{port}"))
        async with weir("serve", "-c", str(path), under=("nohup",)) as process:
            await process.says("serving m on")
            process.signal(signal.SIGHUP)
            async with connect(port) as client:
                await client.send(request_bytes("POST", CHAT, r0()))
                assert (await client.reply()).done
            process.signal()
            await ended_well(process)
            assert process.err.decode().count("stopping") == 1


async def test_an_admin_address_in_use_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "weir.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path.write_text(
            config("http://127.0.0.1:9", listen="127.0.0.1:0", admin={"listen": f"127.0.0.1:{port}"}),
        )
        async with weir("serve", "-c", str(path)) as process:
            assert await process.ended() == 1
            told = process.err.decode()
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in told
            assert "admin.listen" in told
            assert "Traceback" not in told


async def test_a_connection_accepted_at_the_last_moment_is_closed_too() -> None:
    """Its protocol is made after the others have been told."""
    loop = asyncio.get_running_loop()
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u,
        serving(u.url) as server,
        connect(server.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        uvicorn = server._servers[0]  # pyright: ignore[reportPrivateUsage]
        stopping = asyncio.create_task(server.stop())
        await eventually(lambda: not uvicorn.servers[0].is_serving())
        theirs, ours = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            protocol: Any = uvicorn.config.http_protocol_class
            await loop.connect_accepted_socket(
                lambda: protocol(config=uvicorn.config, server_state=uvicorn.server_state, app_state={}), ours
            )
            async with asyncio.timeout(WAIT_S):
                assert await loop.sock_recv(theirs, 1) == b""
        server.hurry()
        await stopping
