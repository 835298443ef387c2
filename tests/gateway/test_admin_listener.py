"""``admin.listen``: the operator's paths on an address of their own, and nowhere else."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.config.file import parse
from gateway.server import CannotListen, RunningServer, start
from tests.fakes.gateway import config
from tests.fakes.raw_client import Reply, connect, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, done, end, eventually, fin, gate, head, tok

CHAT = "/v1/chat/completions"


@asynccontextmanager
async def serving(url: str, **top: Any) -> AsyncGenerator[RunningServer]:
    server = await start(made(url, **top), io.BytesIO())
    try:
        yield server
    finally:
        await server.stop()


def made(url: str, **top: Any) -> Any:
    options: dict[str, Any] = {"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, **top}
    return parse(config(url, **options), source="test", environ={})


async def closed(port: int | None) -> None:
    """Waits until nobody listens there, without connecting."""
    await eventually(lambda: _is_free(f"127.0.0.1:{port}"))


async def get(port: int | None, path: str, method: str = "GET", *headers: tuple[str, str]) -> Reply:
    assert port is not None
    async with connect(port) as client:
        await client.send(request_bytes(method, path, headers=headers))
        return await client.reply(method=method)


async def test_the_operators_paths_are_there_and_not_on_the_main_listener() -> None:
    async with serving("http://127.0.0.1:9") as server:
        assert server.admin_port not in (None, server.port)
        for path in ("/metrics", "/weir/endpoints"):
            assert (await get(server.admin_port, path)).status == 200
            assert (await get(server.port, path)).status == 404


async def test_it_counts_what_the_main_listener_serves() -> None:
    async with ScriptedUpstream(chat_stream()) as u, serving(u.url) as server:
        async with connect(server.port) as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            assert (await client.reply()).done
        assert b'outcome="ok"} 1\n' in (await get(server.admin_port, "/metrics")).body


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("POST", CHAT, 404), ("PUT", "/metrics", 405)]
)
async def test_what_is_not_there_is_told_in_json(method: str, path: str, status: int) -> None:
    async with serving("http://127.0.0.1:9") as server:
        reply = await get(server.admin_port, path, method, ("x-request-id", "mine-1"))
        assert (reply.status, reply.header("content-type")) == (status, "application/json")
        assert reply.error["weir"]["request_id"] == reply.header("x-request-id") == "mine-1"


async def test_the_token_holds_there_too() -> None:
    async with serving("http://127.0.0.1:9", admin={"listen": "127.0.0.1:0", "token": "t0ken"}) as server:
        assert (await get(server.admin_port, "/weir/endpoints")).status == 401
        bearer = ("authorization", "Bearer t0ken")
        assert (await get(server.admin_port, "/weir/endpoints", "GET", bearer)).status == 200


async def test_without_the_key_there_is_no_such_listener() -> None:
    async with serving("http://127.0.0.1:9", admin={}) as server:
        assert server.admin_port is None
        assert (await get(server.port, "/metrics")).status == 200


async def test_the_drain_can_be_watched_there() -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), tok("a"), gate(opened), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u:
        server = await start(made(u.url), io.BytesIO())
        async with connect(server.port) as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            await client.read_until(b'"content":"a"')
            stopping = asyncio.create_task(server.stop())
            await closed(server.port)
            assert (await get(server.admin_port, "/weir/endpoints")).json()[0]["in_flight"] == 1
            opened.set()
            assert (await client.reply()).done
        await stopping
        await closed(server.port)
        await closed(server.admin_port)


@pytest.mark.parametrize("key", ["listen", "admin.listen"])
async def test_an_address_in_use_is_told_by_its_key_and_leaves_nothing_open(key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        free = f"127.0.0.1:{other.getsockname()[1]}"
        other.close()
        top: dict[str, Any] = {"listen": free, "admin": {"listen": free}}
        top |= {"listen": address} if key == "listen" else {"admin": {"listen": address}}
        with pytest.raises(CannotListen) as told:
            await start(made("http://127.0.0.1:9", **top), io.BytesIO())
        assert (told.value.key, told.value.address) == (key, address)
        assert told.value.strerror == "Address already in use"
    await eventually(lambda: _is_free(free))


async def test_a_host_that_does_not_exist_is_told_in_words() -> None:
    with pytest.raises(CannotListen) as told:
        await start(made("http://127.0.0.1:9", listen="no-such-host.invalid:0"), io.BytesIO())
    assert told.value.strerror
    assert "Unknown error" not in told.value.strerror


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections may be left, a listener not
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
        return True
