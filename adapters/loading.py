"""How an engine says that it loads its model: alive, but not yet of use.

| engine | while it loads |
| --- | --- |
| llama.cpp | 503 "Loading model" on every path; the port is open early |
| SGLang | 503 at /ready, which is what probes ask; the same while it drains |
| vLLM, TGI, LMDeploy and the others | the port is not open: nobody can tell it from a dead one |
| Ollama | serves, and loads a model for the first request that names it |
"""

from __future__ import annotations

from .failures import EngineFailed

READ_BYTES = 4096
"""As much of a probe's answer as is looked at."""
_WORD = "loading"
_BUSY = 503


def probe_says_loading(engine: str, status: int, body: bytes) -> bool:
    """Whether the answer to a probe at the engine's ``health_path`` says so."""
    return status == _BUSY and (engine == "sglang" or _WORD.encode() in body[:READ_BYTES].lower())


def says_loading(failure: EngineFailed) -> bool:
    """Whether an engine refused a request because of that."""
    return failure.status == _BUSY and _WORD in failure.message.lower()
