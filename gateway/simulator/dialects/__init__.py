"""The engines whose dialects the simulated engine speaks."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.simulator.dialects.lightllm import Lightllm
from gateway.simulator.dialects.llamacpp import Llamacpp
from gateway.simulator.dialects.ollama import Ollama
from gateway.simulator.dialects.openai import OpenAi
from gateway.simulator.dialects.protocol import Dialect
from gateway.simulator.dialects.sglang import Sglang
from gateway.simulator.dialects.tgi import Tgi
from gateway.simulator.dialects.vllm import Vllm

DIALECTS: Mapping[str, Dialect] = {
    "vllm": Vllm(),
    "tgi": Tgi(),
    "ollama": Ollama(),
    "lightllm": Lightllm(),
    "sglang": Sglang(),
    "llamacpp": Llamacpp(),
    "openai": OpenAi(),
}
