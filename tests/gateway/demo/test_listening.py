"""Weir's port in the demo."""

from __future__ import annotations

import errno
import io
import socket
from typing import Any

import httpx2
import pytest

from gateway import server
from gateway.demo import engine_kind
from gateway.demo.listening import CannotListen, configuration, listen
from tests.fakes.patience import WAIT_S

CONFIG = configuration(engine_kind.simulated(), ["http://127.0.0.1:9001", "http://127.0.0.1:9002"])


def test_all_engines_are_one_pool_that_also_answers_to_default() -> None:
    (pool,) = CONFIG.pools.values()
    assert (pool.name, pool.aliases) == ("simulated", ("default",))
    assert [endpoint.url for endpoint in pool.endpoints] == ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]


async def test_any_free_port_is_taken_without_a_word() -> None:
    said: list[str] = []
    running = await listen(CONFIG, 0, io.BytesIO(), said.append)
    try:
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            assert (await client.get(f"http://127.0.0.1:{running.port}/healthz")).status_code == 200
    finally:
        await running.stop()
    assert said == []


async def test_a_port_in_use_is_told_and_the_next_free_one_taken() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = await listen(CONFIG, port, io.BytesIO(), said.append)
        await running.stop()
    assert running.port > port
    assert said == [f"Port {port} is in use, so Weir takes {running.port}; --port names another."]


async def test_another_reason_not_to_listen_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def start(config: Any, access_out: Any) -> server.RunningServer:
        asked.append(config.listen)
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(server, "start", start)
    with pytest.raises(CannotListen, match=r"^cannot listen on port 80: Permission denied; choose another --port$"):
        await listen(CONFIG, 80, io.BytesIO(), print)
    assert asked == ["127.0.0.1:80"]


async def test_when_no_port_is_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(config: Any, access_out: Any) -> server.RunningServer:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(server, "start", start)
    with pytest.raises(CannotListen, match="the ports from 65535 on are in use; choose another --port"):
        await listen(CONFIG, 65535, io.BytesIO(), print)
