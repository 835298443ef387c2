"""Which real engine the tests meet: llama.cpp, or what ``WEIR_LIVE_ENGINE`` says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gateway.demo import engine_kind
from gateway.demo.engine_kind import EngineKind
from gateway.demo.installation import find_model
from tests.live import vllm_server
from tests.live.vllm_installation import find_checkpoint

ENGINES = 2
CHOSEN = os.environ.get("WEIR_LIVE_ENGINE", "llamacpp")
PATIENCE = 4 if CHOSEN == "vllm" else 1  # by how much longer a test may take: vLLM is slow on a CPU


@dataclass(frozen=True, slots=True)
class RealEngines:
    """Engines that run.

    Attributes:
        urls: Without ``/v1``.
    """

    kind: EngineKind
    urls: tuple[str, ...]


def chosen() -> EngineKind:
    """Returns the engine that is to be started.

    Raises:
        NotInstalled: It is missing here.
    """
    if CHOSEN == "vllm":
        return vllm_server.chatting(find_checkpoint(), ENGINES)
    if CHOSEN == "llamacpp":
        return engine_kind.llamacpp(find_model(), ENGINES)
    raise ValueError(f"WEIR_LIVE_ENGINE is llamacpp or vllm, not {CHOSEN!r}")
