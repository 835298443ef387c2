"""The engines the demo can start: what they are called and how they are run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..config import Engine

MODEL = "smollm2-135m"
MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One way to run an engine.

    Attributes:
        title: For people.
        engine: The configuration's word for its dialect.
        model: The name it serves.
        module: Run with ``python -m``.
        arguments: Its command line.
        start_s: After so long without an answer it has failed.
    """

    title: str
    engine: Engine
    model: str
    module: str
    arguments: tuple[str, ...]
    start_s: float


def llamacpp(model_path: Path, engines: int, cpus: int | None = os.cpu_count()) -> EngineKind:
    """llama.cpp with a real model; ``engines`` of them share the machine."""
    threads = max(1, min(MOST_THREADS, (cpus or 1) // engines))
    options = ("--model", str(model_path), "--alias", MODEL, "--threads", str(threads))
    return EngineKind("llama.cpp", "llamacpp", MODEL, "gateway.demo.llamacpp_server", options, 120.0)


def simulated() -> EngineKind:
    """``weir engine``, under a name that says what it is."""
    options = ("--port", "0", "--model", "simulated", "--jitter", "0.2")
    return EngineKind("simulated engine", "vllm", "simulated", "gateway.demo.simulated_engine", options, 30.0)
