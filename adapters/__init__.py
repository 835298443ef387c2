"""Engine dialects: sans-IO codecs, one file each, and the one list of them."""

from __future__ import annotations

from .llamacpp import LLAMACPP
from .ollama import OLLAMA
from .openai_compatible import OpenAiCompatible
from .sglang import SGLANG
from .tgi import TGI
from .types import Adapter
from .vllm import VLLM

_ALL: tuple[Adapter, ...] = (OpenAiCompatible(), VLLM, SGLANG, LLAMACPP, OLLAMA, TGI)

ADAPTERS: dict[str, Adapter] = {adapter.name: adapter for adapter in _ALL}
