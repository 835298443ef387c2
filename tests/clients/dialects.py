"""The dialects that every client meets. A name added to ``DIALECTS`` is all that a new one needs."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gateway.config import Engine
from gateway.demo.engine_kind import EngineKind
from gateway.demo.engine_process import EngineProcess
from tests.fakes.scripted import eventually

DIALECTS: tuple[Engine, ...] = ("openai", "vllm", "sglang", "llamacpp", "tgi", "ollama", "lightllm")

# Calls, or "choices" (more than one answer to a request), that an engine cannot do: Weir must refuse them in words.
LACKS: Mapping[str, frozenset[str]] = {
    "lightllm": frozenset({"embeddings"}),
    "ollama": frozenset({"choices"}),
    "tgi": frozenset({"embeddings", "choices"}),
}

MODEL = "simulated-1"


def engine_of(dialect: Engine) -> EngineKind:
    """Returns the simulated engine that speaks it, fast enough not to be waited for."""
    speaks = ("--dialect", dialect, "--port", "0", "--model", MODEL)
    options = (*speaks, "--ttft", "1ms", "--itl", "1ms", "--slots", "32")
    return EngineKind(f"simulated {dialect}", dialect, MODEL, "gateway.demo.simulated_engine", options, start_s=30.0)


@contextmanager
def running_engine(dialect: Engine, logs: Path) -> Generator[str]:
    """Yields the engine's URL once it listens. Whether it is healthy, each says in its own way: Weir asks."""
    kind = engine_of(dialect)
    log = logs / f"{dialect}.log"
    with EngineProcess(kind.title, kind.module, kind.arguments, log) as process:
        asyncio.run(eventually(lambda: process.url is not None or process.exit_status is not None, kind.start_s))
        assert process.url is not None, log.read_text()
        yield process.url
