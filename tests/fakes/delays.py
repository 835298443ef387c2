"""Requests through a real gateway, each held up once, for a known time and in a known phase."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import quote

from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.script import Script, Step, chunk, done, end, event, fin, head, json_answer, pause, raw, role, tok
from tests.fakes.scripted import Answer, Request, ScriptedUpstream, usage_object
from tests.fakes.slow_client import connect_slow

DELAY_S = 0.3
CHAT = "/v1/chat/completions"
LARGE = "x" * 65_536
LARGE_PIECES = 70  # more than the buffers of two connections hold
QUICK_BEFORE = 4

Explained = dict[str, Any]
Send = Callable[[RunningGateway, str], Awaitable[None]]


def answer(*, before_head: float = 0.0, before_output: float = 0.0, within: float = 0.0, **told: object) -> list[Step]:
    """A stream of three tokens that waits somewhere; ``told`` are members of its last chunk."""
    return [
        pause(before_head),
        head(200, "sse"),
        role(),
        pause(before_output),
        tok("a"),
        pause(within),
        tok("b"),
        tok("c"),
        fin("stop"),
        event(chunk([], usage=usage_object(9, 3), **told)),
        done(),
        end(),
    ]


def vllm_metrics(queue_s: float, prefill_s: float) -> dict[str, float]:
    return {
        "queue_time_ms": queue_s * 1e3,
        "time_to_first_token_ms": prefill_s * 1e3,
        "generation_time_ms": 1.0,
    }


async def post(gateway: RunningGateway, name: str) -> None:
    assert (await gateway.post(r0(), headers=[("x-request-id", name)])).status == 200


async def post_among_others(gateway: RunningGateway, name: str) -> None:
    for number in range(QUICK_BEFORE):
        await post(gateway, f"quick-{name}-{number}")
    await post(gateway, name)


async def post_slowly(gateway: RunningGateway, name: str) -> None:
    """Sends half of the body, and the rest after the delay."""
    sent = request_bytes("POST", CHAT, r0(), [("x-request-id", name)])
    async with gateway.connect() as connection:
        await connection.send(sent[:-20])
        await asyncio.sleep(DELAY_S)
        await connection.send(sent[-20:])
        await connection.reply()


async def read_slowly(gateway: RunningGateway, name: str) -> None:
    """Takes nothing for as long as the delay, and longer until the engine is held back."""
    async with connect_slow(gateway.port) as connection:
        await connection.send(request_bytes("POST", CHAT, r0(), [("x-request-id", name)]))
        await asyncio.sleep(DELAY_S + 0.1)
        await connection.rest(within_s=30.0)


SLOW_FAILURE: Script = [pause(DELAY_S), *json_answer({"error": {"message": "out of memory"}}, 500)]
LARGE_ANSWER: Script = [head(200, "sse"), role(), *[tok(LARGE)] * LARGE_PIECES, fin("stop"), done(), end()]
WAITING = 5
GAUGES: Mapping[str, Script] = {
    "/metrics": [
        head(200, "text"),
        raw(b"vllm:num_requests_running 8\nvllm:num_requests_waiting %d\n" % WAITING),
        end(),
    ]
}


def now_and_then(request: Request) -> Script:
    """Waits with some requests only, as what is told by nobody can be told by what is usual."""
    return answer(before_head=DELAY_S if (request.header("x-request-id") or b"").startswith(b"r") else 0.0)


# For each kind: the phase that has to be named, the engines (dialect, answer, GET paths), and what the client does.
Engine = tuple[str, Script | Answer, Mapping[str, Script]]
KINDS: Mapping[str, tuple[str, tuple[Engine, ...], Send]] = {
    "a client that sends slowly": ("read", (("vllm", answer(), {}),), post_slowly),
    "an attempt that fails": ("retries", (("vllm", SLOW_FAILURE, {}), ("vllm", answer(), {})), post),
    "a queue that the engine tells": (
        "engine_queue",
        (("vllm", answer(before_head=DELAY_S, metrics=vllm_metrics(DELAY_S, 0.001)), {}),),
        post,
    ),
    "a prefill that the engine tells": (
        "prefill",
        (("vllm", answer(before_head=DELAY_S, metrics=vllm_metrics(0.0, DELAY_S)), {}),),
        post,
    ),
    "a queue that the gauge shows": ("engine_queue", (("vllm", now_and_then, GAUGES),), post_among_others),
    "a head that waits for a slot": ("engine_queue", (("llamacpp", answer(before_head=DELAY_S), {}),), post),
    "a prefill after the head": ("prefill", (("llamacpp", answer(before_output=DELAY_S), {}),), post),
    "an engine that tells nothing": ("engine_queue", (("openai", now_and_then, {}),), post_among_others),
    "a pause between tokens": ("decode", (("vllm", answer(within=DELAY_S), {}),), post),
    "a client that takes nothing": ("client_write_wait", (("vllm", LARGE_ANSWER, {}),), read_slowly),
}
# What a verdict says of a phase.
WORDS: Mapping[str, str] = {
    "read": "to send its body",
    "retries": "failed attempt",
    "engine_queue": "'s queue",
    "prefill": "prefill took",
    "decode": "decode took",
    "client_write_wait": "the client took nothing",
}


@asynccontextmanager
async def held_up(kind: str) -> AsyncGenerator[Callable[[str], Awaitable[Explained]]]:
    """Yields what sends one request of that kind, under a name, and returns what Weir tells of it."""
    _, engines, send = KINDS[kind]
    async with AsyncExitStack() as started:
        made: list[dict[str, Any]] = []
        for dialect, script, plain in engines:
            upstream = await started.enter_async_context(ScriptedUpstream(script, plain=plain))
            made.append({"url": upstream.url, "engine": dialect})
        rules = {"health": {"interval": "100ms", "failures": 1_000_000}, "retries": {"budget": 1.0}}
        text = config(*made, pool_options=rules, stream={"buffer": "64KiB"})
        gateway = await started.enter_async_context(running_gateway(text))
        if engines[0][2]:
            await _until(gateway, "/weir/endpoints", lambda reply: reply.json()[0]["waiting"] == WAITING)

        async def explained(name: str) -> Explained:
            await send(gateway, name)
            # Its record is closed a moment after its last byte
            reply = await _until(gateway, f"/weir/requests/{quote(name, safe='')}", lambda reply: reply.status == 200)
            found: Explained = reply.json()
            return found

        yield explained


async def _until(gateway: RunningGateway, path: str, condition: Callable[[Reply], bool]) -> Reply:
    while not condition(reply := await gateway.get(path)):
        pass
    return reply
