"""Engine dialects: sans-IO codecs, one file each, and the one list of them."""

from __future__ import annotations

from .lightllm import LIGHTLLM
from .llamacpp import LLAMACPP
from .lmdeploy import LMDEPLOY
from .ollama import OLLAMA
from .openai_compatible import OpenAiCompatible
from .sglang import SGLANG
from .tgi import TGI
from .trtllm import TRTLLM
from .types import Adapter
from .vllm import VLLM

_ALL: tuple[Adapter, ...] = (OpenAiCompatible(), VLLM, SGLANG, LLAMACPP, OLLAMA, TGI, LIGHTLLM, LMDEPLOY, TRTLLM)

ADAPTERS: dict[str, Adapter] = {adapter.name: adapter for adapter in _ALL}
