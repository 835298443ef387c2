"""Whether an engine answers to a model name, as far as its list of models tells.

vLLM and Ollama refuse what they do not list; LoRA adapters are in vLLM's list. SGLang, LightLLM, TGI and a llama.cpp
with one model do not look at the name. Others may know more names than they list, or load what they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Answers = Literal["yes", "no", "perhaps"]

_REFUSE = frozenset(("vllm", "ollama"))
_TAKE_ANY = frozenset(("sglang", "lightllm", "tgi"))


def answers_to(engine: str, model: str, listed: Collection[str]) -> Answers:
    """Returns whether requests for a model are answered.

    Args:
        engine: Which engine it is.
        model: The name that it is sent.
        listed: The names in its list; a list without any tells nothing.
    """
    if engine in _TAKE_ANY or (engine == "llamacpp" and len(listed) == 1):
        return "yes"
    names = {tagged(name) for name in listed} if engine == "ollama" else listed
    if (tagged(model) if engine == "ollama" else model) in names:
        return "yes"
    return "no" if engine in _REFUSE and listed else "perhaps"


def tagged(name: str) -> str:
    """Returns a name as Ollama compares them: whatever its case, and ``qwen3`` is ``qwen3:latest``."""
    name = name.lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
