"""Real engines killed in mid-stream: the client reads the text that it would have read without the death."""

from __future__ import annotations

import io
import os
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from prometheus_client.parser import text_string_to_metric_families

from gateway.config import Config, EndpointConfig, HealthConfig, PoolConfig, RecorderConfig
from gateway.demo.engine_kind import MODEL, EngineKind
from gateway.demo.engine_process import EngineProcess
from gateway.demo.installation import NotInstalled
from gateway.demo.listening import listen
from gateway.demo.readiness import until_healthy
from gateway.recorder.location import MEMORY
from tests.live import real_engine
from tests.live.real_engine import PATIENCE

pytestmark = pytest.mark.engine

KILLS = int(os.environ.get("WEIR_LIVE_KILLS", "3"))  # the figure of docs/resume.md is of 20
TOKENS = 48
PROMPTS = (
    "Name three colours.",
    "Explain what a proxy server does.",
    "Write a short poem about the sea.",
    "List the first ten prime numbers, separated by commas.",
    "Write a Python function that adds two numbers.",
    "What is 12 times 12? Show the steps.",
    "Tell me a story about a dragon and a blacksmith.",
)


class Replica:
    """One engine on a port of its own, that can be killed and started again there.

    Attributes:
        url: Without ``/v1``.
        killed: It is dead, and has not been started again.
    """

    def __init__(self, kind: EngineKind, log: Path) -> None:
        self._kind = kind
        self._log = log
        self._process = EngineProcess("replica", kind.module, kind.arguments, log)
        self._port = 0
        self.url = ""
        self.killed = False

    async def healthy(self) -> None:
        self.url = await until_healthy(self._process, self._kind.start_s)
        self._port = urlsplit(self.url).port or 0

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self.killed = True

    async def start_again(self) -> None:
        self._process.stop()
        self.killed = False
        arguments = (*self._kind.arguments, "--port", str(self._port))
        self._process = EngineProcess("replica", self._kind.module, arguments, self._log)
        await self.healthy()

    def stop(self) -> None:
        self._process.stop()


@dataclass(frozen=True, slots=True)
class Said:
    """What a client read of one stream."""

    text: str
    finish: str | None
    usage: tuple[int, int, int]
    ids: frozenset[str]
    chunks: int


@asynccontextmanager
async def weir_before(replicas: list[Replica]) -> AsyncGenerator[openai.AsyncOpenAI]:
    endpoints = tuple(
        EndpointConfig(id=f"r{number}", url=replica.url, engine="auto", model=MODEL, weights="the same file")
        for number, replica in enumerate(replicas)
    )
    patient = HealthConfig(failures=1000, interval_s=0.5)
    config = Config(pools={"m": PoolConfig(endpoints=endpoints, health=patient)}, recorder=RecorderConfig(path=MEMORY))
    weir = await listen(config, 0, io.BytesIO(), print)
    url = f"http://127.0.0.1:{weir.port}/v1"
    try:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=60 * PATIENCE) as client:
            yield client
    finally:
        await weir.stop()


async def read(client: openai.AsyncOpenAI, prompt: str, replicas: list[Replica], kill_after: int | None) -> Said:
    """Reads one greedy stream; kills the engine that gives it after so many chunks with text."""
    raw = await client.chat.completions.with_raw_response.create(
        model="m",
        messages=[{"role": "user", "content": prompt}],
        temperature=0,
        max_tokens=TOKENS,
        stream=True,
        stream_options={"include_usage": True},
    )
    replica = replicas[int(raw.headers["x-weir-endpoint"].removeprefix("r"))]
    texts: list[str] = []
    chunks: list[ChatCompletionChunk] = []
    async for chunk in raw.parse():
        chunks.append(chunk)
        for choice in chunk.choices:
            if choice.delta.content:
                texts.append(choice.delta.content)
        if kill_after is not None and len(texts) >= kill_after:
            replica.kill()
            kill_after = None
    usage = chunks[-1].usage
    assert usage is not None
    return Said(
        "".join(texts),
        next((choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason), None),
        (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
        frozenset(chunk.id for chunk in chunks),
        len(texts),
    )


@pytest.mark.deadline((60 + 40 * KILLS) * PATIENCE)
async def test_streams_of_killed_replicas_join_to_the_text_without_a_break(tmp_path: Path) -> None:
    try:
        kind = real_engine.chosen()
    except NotInstalled as error:
        pytest.skip(str(error))
    seeded = random.Random(20)
    async with AsyncExitStack() as stack:
        replicas = [Replica(kind, tmp_path / f"{number}.log") for number in range(2)]
        for replica in replicas:
            stack.callback(replica.stop)
            await replica.healthy()
        client = await stack.enter_async_context(weir_before(replicas))
        for turn in range(KILLS):
            prompt = PROMPTS[turn % len(PROMPTS)]
            whole = await read(client, prompt, replicas, None)
            joined = await read(client, prompt, replicas, seeded.randint(1, whole.chunks - 4))
            assert joined.text == whole.text, prompt
            assert joined.finish == whole.finish
            assert joined.usage == whole.usage
            assert len(joined.ids) == 1
            if turn < KILLS - 1:
                for replica in replicas:
                    if replica.killed:
                        await replica.start_again()
        base = str(client.base_url).removesuffix("/v1/")
        assert await _resumed(base) == KILLS


async def _resumed(base_url: str) -> float:
    """How many streams Weir says were resumed."""
    async with httpx2.AsyncClient() as client:
        scrape = (await client.get(f"{base_url}/metrics")).text
    families = text_string_to_metric_families(scrape)
    samples = [sample for family in families for sample in family.samples if sample.name == "weir_resumes_total"]
    return sum(sample.value for sample in samples if sample.labels["result"] == "resumed")
