"""The OpenAI-speaking engines, and how tests spread over them."""

from __future__ import annotations

from collections.abc import Iterable

ENGINES = ("openai", "vllm", "sglang", "llamacpp")
WHOLE_ANSWER_ENGINES = ("openai", "vllm", "sglang")
"""Those that are asked for a whole answer when the client wants one; the others are asked for a stream."""


def spread(forms: Iterable[str], engines: tuple[str, ...] = ENGINES) -> list[tuple[str, str]]:
    """Pairs of form and engine: each form once, the engines in turn; the full product would take minutes."""
    return [(form, engines[i % len(engines)]) for i, form in enumerate(forms)]
