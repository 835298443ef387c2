"""The engines that every client meets: a simulated one of each dialect, or instead the real vLLM if it is asked for.

A name added to ``DIALECTS`` is all that a new dialect needs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.config import Engine
from gateway.simulator.batching import Pace
from gateway.simulator.server import Settings
from tests.gateway.simulator.served import serve

# The first speaks OpenAI's API by itself: it is asked directly for what clients have to get.
DIALECTS: tuple[Engine, ...] = ("openai", "vllm", "sglang", "llamacpp", "tgi", "ollama", "lightllm")

REAL = "real"  # instead of them, in front of what tests/live has

# Calls, or "choices" (more than one answer to a request), that an engine cannot do: Weir must refuse them in words.
LACKS: Mapping[str, frozenset[str]] = {
    "lightllm": frozenset({"embeddings"}),
    "ollama": frozenset({"choices"}),
    "tgi": frozenset({"embeddings", "choices"}),
    REAL: frozenset({"embeddings"}),  # its model chats
}

_MODEL = "simulated-1"
_FAST = Pace(ttft_s=0.001, itl_s=0.001, slots=32)  # not to be waited for


@dataclass(frozen=True, slots=True)
class Behind:
    """Engines that run, of one dialect.

    Attributes:
        model: Their own name of it.
        urls: Without ``/v1``.
    """

    engine: Engine
    model: str
    urls: tuple[str, ...]


@asynccontextmanager
async def simulated(dialect: Engine) -> AsyncGenerator[Behind]:
    """Serves an engine that speaks it, in this event loop."""
    settings = Settings(dialect=dialect, models=(_MODEL,), pace=_FAST, context_tokens=8192)
    async with serve(settings) as served:
        yield Behind(dialect, _MODEL, (served.url,))
