"""No request leaves anything behind that refers to itself: freeing it takes a collection, which stops every stream."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

import gateway
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    eof,
    eventually,
    hang,
    head,
    json_answer,
    raw,
    tok,
)
from tests.gateway.client.connections import Connections

ROOT = str(Path(gateway.__file__).parents[1])
OURS = ("gateway", "adapters", "policies")
CHAT = "/v1/chat/completions"
REQUESTS = 20
FAILED = {"error": {"message": "no", "type": "server_error", "code": 500}}


def code_file(found: object) -> str:
    """The file of a frame, a traceback's frame or a coroutine; "" for anything else."""
    code: object = None
    if isinstance(found, TracebackType):
        code = found.tb_frame.f_code
    elif isinstance(found, FrameType):
        code = found.f_code
    elif inspect.iscoroutine(found):
        code = found.cr_code
    return code.co_filename if isinstance(code, CodeType) else ""


def is_ours(found: object) -> bool:
    package = type(found).__module__.partition(".")[0]
    in_our_code = code_file(found).startswith(tuple(f"{ROOT}/{name}/" for name in OURS))
    return package in OURS or isinstance(found, RequestResponseCycle) or in_our_code


@contextmanager
def garbage() -> Generator[Counter[str]]:
    """Counts what of ours only the collector could free since the beginning, by type; filled on the way out."""
    counted: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield counted
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        counted.update(
            f"{type(found).__qualname__} {code_file(found)}".strip() for found in gc.garbage if is_ours(found)
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


Ask = Callable[[RunningGateway, ScriptedUpstream], Awaitable[None]]


def posts(body: object, status: int, path: str = CHAT) -> Ask:
    async def ask(gw: RunningGateway, u: ScriptedUpstream) -> None:
        assert (await gw.post(body, path)).status == status

    return ask


def leaves(body: object, marker: bytes, path: str = CHAT) -> Ask:
    """Leaves as soon as it has the marker and the engine the request."""

    async def ask(gw: RunningGateway, u: ScriptedUpstream) -> None:
        async with gw.connect() as client:
            before = len(u.requests)
            await client.send(request_bytes("POST", path, body))
            await u.arrived(before + 1)
            await client.read_until(marker)
            client.reset()
            await asyncio.wait_for(u.last.left.wait(), WAIT_S)

    return ask


def gets(path: str) -> Ask:
    async def ask(gw: RunningGateway, u: ScriptedUpstream) -> None:
        assert (await gw.get(path)).status == 200

    return ask


async def asks_twice_on_one_connection(gw: RunningGateway, u: ScriptedUpstream) -> None:
    async with gw.connect() as client:
        for _ in range(2):
            await client.send(request_bytes("POST", CHAT, r0()))
            assert (await client.reply()).done
            client.reads.clear()


async def leaves_with_another_request_behind(gw: RunningGateway, u: ScriptedUpstream) -> None:
    async with gw.connect() as client:
        before = len(u.requests)
        await client.send(request_bytes("POST", CHAT, r0()) * 2)
        await u.arrived(before + 1)
        client.reset()
        await asyncio.wait_for(u.last.left.wait(), WAIT_S)


async def is_refused(gw: RunningGateway, u: ScriptedUpstream) -> None:
    assert (await gw.raw(b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n")).status == 400


STARTED: Script = [head(200, "sse"), tok("a"), hang()]
WAYS: dict[str, tuple[Script, Ask]] = {
    "a stream": (chat_stream(), posts(r0(), 200)),
    "streams on one connection": (chat_stream(), asks_twice_on_one_connection),
    "a whole answer": (json_answer(completion()), posts(r0(stream=False), 200)),
    "what is passed on": (json_answer({"a": 1}), posts({"model": "m"}, 200, "/v1/rerank")),
    "the health page": ([hang()], gets("/healthz")),
    "the metrics": ([hang()], gets("/metrics")),
    "the models": ([hang()], gets("/v1/models")),
    "a client's error": ([hang()], posts(r0(model="other"), 404)),
    "a body that is no JSON": ([hang()], posts(b"{", 400)),
    "a head that is no HTTP": ([hang()], is_refused),
    "an engine's 500": (json_answer(FAILED, 500), posts(r0(), 500)),
    "an engine's 500 to a whole answer": (json_answer(FAILED, 500), posts(r0(stream=False), 500)),
    "an engine's 400": (json_answer(FAILED, 400), posts(r0(), 400)),
    "a stream that the engine cuts": ([head(200, "sse"), tok("a"), eof()], posts(r0(), 200)),
    "a whole answer that the engine cuts": ([head(200, length=9), raw(b"{"), eof()], posts(r0(stream=False), 502)),
    "an engine that goes away": ([eof()], posts(r0(), 502)),
    "a client that leaves a stream": (STARTED, leaves(r0(), b'"content":"a"')),
    "a client that leaves before the head": ([hang()], leaves(r0(), b"")),
    "a client that leaves a whole answer": ([hang()], leaves(r0(stream=False), b"")),
    "a client that leaves with another request behind": ([hang()], leaves_with_another_request_behind),
    "a client that leaves what is passed on": (
        [head(200), raw(b"half"), hang()],
        leaves({"model": "m"}, b"half", "/v1/rerank"),
    ),
}


def requests_under_way() -> bool:
    return any("run_asgi" in str(task.get_coro()) for task in asyncio.all_tasks())


@pytest.mark.parametrize("transport", ["native", "httpx2"])
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_of_a_request_waits_for_the_collector(way: str, transport: str, connections: Connections) -> None:
    script, ask = WAYS[way]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config({"url": u.url, "transport": transport})) as gw,
    ):
        for _ in range(3):
            await ask(gw, u)
        await eventually(lambda: connections.open == 0)
        with garbage() as left:
            for _ in range(REQUESTS):
                await ask(gw, u)
            await eventually(lambda: connections.open == 0 and not requests_under_way())
        assert dict(left) == {}
