"""The engines that every client meets: a simulated one of each dialect, or instead the real vLLM if it is asked for.

A name added to ``DIALECTS`` is all that a new dialect needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.config import Engine
from gateway.demo.engine_kind import EngineKind
from gateway.demo.engine_process import EngineProcess
from tests.fakes.scripted import eventually

DIALECTS: tuple[Engine, ...] = ("openai", "vllm", "sglang", "llamacpp", "tgi", "ollama", "lightllm")

REAL: Literal["real"] = "real"  # instead of them, in front of what tests/live has

# Calls, or "choices" (more than one answer to a request), that an engine cannot do: Weir must refuse them in words.
LACKS: Mapping[str, frozenset[str]] = {
    "lightllm": frozenset({"embeddings"}),
    "ollama": frozenset({"choices"}),
    "tgi": frozenset({"embeddings", "choices"}),
}

REAL_LACKS = frozenset({"embeddings"})  # its model chats

MODEL = "simulated-1"


@dataclass(frozen=True, slots=True)
class Behind:
    """Engines that run, of one dialect.

    Attributes:
        urls: Without ``/v1``.
        lacks: What they cannot do.
        truth_url: An engine that says what a client has to get, asked directly.
    """

    kind: EngineKind
    urls: tuple[str, ...]
    lacks: frozenset[str]
    truth_url: str


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
