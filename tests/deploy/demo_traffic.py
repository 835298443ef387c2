"""Traffic in which everything happens that a panel shows: streams, whole answers, failures, retries, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from deploy.local_prometheus import Targets
from gateway.simulator.batching import Pace
from gateway.simulator.settings import Settings
from tests.fakes.gateway import RunningGateway, running_gateway
from tests.fakes.raw_client import request_bytes
from tests.fakes.scripted import (
    Answer,
    Request,
    Script,
    ScriptedUpstream,
    head,
    json_answer,
    role,
    rst,
    tok,
)
from tests.gateway.simulator.served import serve

MESSAGES = [{"role": "user", "content": "Tell me about the weir, and of the water that runs over it."}]
TROUBLE = {"error": {"message": "engine trouble"}}
FAST = Pace(ttft_s=0.01, itl_s=0.002, slots=2, prefill_tokens_per_s=20_000.0, jitter_ratio=0.3)
"""Two slots, so that requests wait in the engine too."""


@dataclass(frozen=True, slots=True)
class Demo:
    """A gateway under traffic, and where Prometheus finds it and its engines.

    Attributes:
        targets: For ``running_prometheus``.
    """

    gateway: RunningGateway
    targets: Targets


@asynccontextmanager
async def demo() -> AsyncGenerator[Demo]:
    """Starts engines and a gateway, and keeps asking until the block ends."""
    async with AsyncExitStack() as stack:
        vllm, tgi = [
            await stack.enter_async_context(serve(Settings(dialect=dialect, models=("m",), pace=FAST, seed=seed)))
            for seed, dialect in enumerate(("vllm", "tgi"))
        ]
        flaky = await stack.enter_async_context(ScriptedUpstream(_in_turns(_FAILURES)))
        busy = await stack.enter_async_context(ScriptedUpstream(json_answer(TROUBLE, 503)))
        pools = {
            "good": _pool(
                {"id": "vllm-0", "url": vllm.url, "engine": "vllm", "model": "m"},
                {"id": "tgi-0", "url": tgi.url, "engine": "tgi", "model": "m"},
            ),
            "flaky": _pool(
                {"id": "flaky-0", "url": flaky.url, "engine": "vllm"},
                {"id": "flaky-1", "url": vllm.url, "engine": "vllm", "model": "m"},
                health={"eject": "300ms", "eject_max": "300ms", "interval": "200ms"},
            ),
            "busy": _pool({"id": "busy-0", "url": busy.url, "engine": "vllm"}),
            "vectors": _pool(
                {"id": "vectors-0", "url": vllm.url, "engine": "vllm", "model": "m"},
                embeddings_batch={"inputs": 4, "wait": "5ms"},
            ),
        }
        gateway = await stack.enter_async_context(running_gateway(json.dumps({"pools": pools})))
        asking = [asyncio.create_task(_ask_on(gateway, kind)) for kind in _KINDS]
        try:
            yield Demo(
                gateway,
                {
                    "weir": [(f"127.0.0.1:{gateway.port}", {})],
                    "engines": [
                        (f"127.0.0.1:{vllm.port}", {"endpoint": "vllm-0"}),
                        (f"127.0.0.1:{tgi.port}", {"endpoint": "tgi-0"}),
                    ],
                },
            )
        finally:
            for task in asking:
                task.cancel()
            ended = await asyncio.gather(*asking, return_exceptions=True)
            for error in ended:
                if not isinstance(error, asyncio.CancelledError) and isinstance(error, BaseException):
                    raise error


def _pool(*endpoints: Mapping[str, object], **options: object) -> Mapping[str, object]:
    return {"endpoints": list(endpoints), "required": False, **options}


_FAILURES: Sequence[Script] = (
    [rst()],
    json_answer(TROUBLE, 500),
    [head(200, "sse"), role(), tok("a"), rst()],
)

_KINDS: Sequence[tuple[str, str, Mapping[str, object]]] = (
    *(("good", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 20, "stream": True}) for _ in range(5)),
    ("good", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 5}),
    ("flaky", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 5, "stream": True}),
    ("busy", "/v1/chat/completions", {"messages": MESSAGES}),
    *(("vectors", "/v1/embeddings", {"input": "water"}) for _ in range(2)),
    ("good", "/v1/chat/completions", {"messages": "no list"}),
)


def _in_turns(scripts: Sequence[Script]) -> Answer:
    taken = 0

    def answer(_: Request) -> Script:
        nonlocal taken
        taken += 1
        return scripts[taken % len(scripts)]

    return answer


async def _ask_on(gateway: RunningGateway, kind: tuple[str, str, Mapping[str, object]]) -> None:
    """Asks the same again and again, each time on a new connection."""
    pool, path, fields = kind
    request = request_bytes("POST", path, {"model": pool, **fields})
    while True:
        await gateway.raw(request)
        await asyncio.sleep(0.02)  # the processor is for everybody
