"""Names looked up: once for all who ask, and never waited for longer than needed."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from threading import Event
from typing import Any

import pytest

from gateway.upstream import resolver
from gateway.upstream.resolver import Resolver
from tests.fakes.patience import WAIT_S
from tests.fakes.weir_process import ROOT
from tests.gateway.upstream.raw_peer import eventually

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]
AGAIN = socket.gaierror(socket.EAI_AGAIN, "try again")
REFUSES = socket.gaierror(socket.EAI_FAIL, "refused")
NO_NAME = socket.gaierror(socket.EAI_NONAME, "no such name")


class NameServer:
    """In place of the system's.

    Attributes:
        answer: What it says; an exception is raised.
        speaks: Set, while it is not silent.
        asked: How often.
    """

    def __init__(self) -> None:
        self.answer: Any = FOUND
        self.speaks = Event()
        self.speaks.set()
        self.asked = 0

    def __call__(self, *_: object, **__: object) -> Any:
        self.asked += 1
        assert self.speaks.wait(WAIT_S)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    return server


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question is asked anew."""
    monkeypatch.setattr(resolver, "FRESH_S", -1.0)


async def test_one_look_up_serves_all_that_ask_meanwhile_and_shortly_after(server: NameServer) -> None:
    names = Resolver("engine.test", 80)
    server.speaks.clear()
    asking = [asyncio.ensure_future(names.addresses()) for _ in range(10)]
    await asyncio.sleep(0)
    assert names.asks
    server.speaks.set()
    assert await asyncio.gather(*asking) == [(("192.0.2.1", 80),)] * 10
    assert await names.addresses() == (("192.0.2.1", 80),)
    assert server.asked == 1
    assert not names.asks


async def test_who_leaves_does_not_end_the_look_up_of_the_others(server: NameServer) -> None:
    names = Resolver("engine.test", 80)
    server.speaks.clear()
    leaves, stays = asyncio.ensure_future(names.addresses()), asyncio.ensure_future(names.addresses())
    await asyncio.sleep(0)
    leaves.cancel()
    server.speaks.set()
    assert await stays == (("192.0.2.1", 80),)
    assert leaves.cancelled()


@pytest.mark.usefixtures("no_memory")
async def test_a_name_server_that_falls_silent_is_answered_for_by_what_it_said(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "PATIENCE_S", 0.01)
    names = Resolver("engine.test", 80)
    await names.addresses()
    server.speaks.clear()
    assert await names.addresses() == (("192.0.2.1", 80),)
    assert names.asks
    server.answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.2", 80))]
    monkeypatch.setattr(resolver, "PATIENCE_S", WAIT_S)
    server.speaks.set()
    assert await names.addresses() == (("192.0.2.2", 80),)
    assert server.asked == 2


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("cannot", [AGAIN, REFUSES])
async def test_a_name_server_that_cannot_now_is_answered_for_and_one_that_knows_no_such_name_is_not(
    server: NameServer, cannot: socket.gaierror
) -> None:
    names = Resolver("engine.test", 80)
    server.answer = cannot
    with pytest.raises(socket.gaierror, match=str(cannot.strerror)):
        await names.addresses()
    server.answer = FOUND
    await names.addresses()
    server.answer = cannot
    assert await names.addresses() == (("192.0.2.1", 80),)
    server.answer = NO_NAME
    with pytest.raises(socket.gaierror, match="no such name"):
        await names.addresses()


async def test_an_answer_that_nobody_waits_for_any_more_is_no_fault(server: NameServer) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    names = Resolver("engine.test", 80)
    server.speaks.clear()
    server.answer = NO_NAME
    asking = asyncio.ensure_future(names.addresses())
    await asyncio.sleep(0)
    asking.cancel()
    server.speaks.set()
    await eventually(lambda: not names.asks)
    assert not faults


async def test_a_name_that_is_none_says_so() -> None:
    with pytest.raises(OSError, match="none that can be looked up"):
        await Resolver("a..b", 80).addresses()


SILENT = """
import asyncio, socket, threading
from gateway.upstream.resolver import Resolver

socket.getaddrinfo = lambda *_, **__: threading.Event().wait()

async def main():
    try:
        async with asyncio.timeout(0.05):
            await Resolver("engine.test", 80).addresses()
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""


def test_a_process_ends_although_a_name_server_is_silent() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SILENT], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert ended.stdout == "given up\n"
    assert ended.stderr == ""
