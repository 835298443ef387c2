"""Embeddings of a real vLLM behind Weir, one by one and joined."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Generator

import httpx2
import openai
import pytest
import pytest_asyncio

from gateway.config import EmbeddingsBatchConfig
from gateway.demo.engine_kind import MODEL
from gateway.demo.engine_process import EngineProcess
from gateway.demo.installation import NotInstalled
from gateway.demo.listening import configuration, listen
from gateway.demo.readiness import until_healthy
from tests.live import vllm_server
from tests.live.real_engine import CHOSEN, RealEngines
from tests.live.vllm_installation import find_checkpoint

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(CHOSEN != "vllm", reason="the demo's llama.cpp makes no embeddings: make test-vllm"),
]

TEXTS = ["a river", "a lake", "the sea at night"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealEngines]:
    try:
        kind = vllm_server.embedding(find_checkpoint())
    except NotInstalled as error:
        pytest.skip(str(error))
    log = tmp_path_factory.mktemp("embedder") / "0.log"
    with EngineProcess(kind.title, kind.module, kind.arguments, log) as engine:
        yield RealEngines(kind, (asyncio.run(until_healthy(engine, kind.start_s)),))


@pytest_asyncio.fixture(params=[0, len(TEXTS)], ids=["alone", "joined"])
async def client(embedder: RealEngines, request: pytest.FixtureRequest) -> AsyncGenerator[openai.AsyncOpenAI]:
    """Of a Weir that joins so many inputs, or none."""
    inputs: int = request.param
    config = configuration(embedder.kind, embedder.urls)
    # It waits for as long as a test may take, so that what is sent at once is joined.
    batch = EmbeddingsBatchConfig(inputs=inputs, wait_s=20.0)
    pool = config.pools[MODEL].model_copy(update={"embeddings_batch": batch})
    weir = await listen(config.model_copy(update={"pools": {MODEL: pool}}), 0, io.BytesIO(), print)
    try:
        base_url = f"http://127.0.0.1:{weir.port}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=50) as client:
            yield client
    finally:
        await weir.stop()


async def test_each_request_gets_the_vectors_that_the_engine_makes(
    client: openai.AsyncOpenAI, embedder: RealEngines
) -> None:
    async with httpx2.AsyncClient(base_url=embedder.urls[0], trust_env=False, timeout=50) as engine:
        told = await engine.post("/v1/embeddings", json={"model": MODEL, "input": TEXTS})
    expected = [entry["embedding"] for entry in told.json()["data"]]
    answers = await asyncio.gather(*(client.embeddings.create(model=MODEL, input=text) for text in TEXTS))
    for answer, vector in zip(answers, expected, strict=True):
        assert answer.model == MODEL
        assert answer.data[0].index == 0
        assert answer.data[0].embedding == pytest.approx(vector, abs=1e-4)
    assert sum(answer.usage.prompt_tokens for answer in answers) == told.json()["usage"]["prompt_tokens"]


async def test_a_chat_is_refused_in_words(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no such call"):
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}])
