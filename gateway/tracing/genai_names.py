"""OpenTelemetry's names for generative AI, all of them: they move between editions. Here those of 1.41, of 2026-05.

Later ones stand in the repository semantic-conventions-genai.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"

# OpenAI's request fields; of two for the same, the later one counts.
REQUEST_PARAMETERS: Final[Mapping[str, str]] = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
}

_WHOLE: Final = frozenset(("gen_ai.request.max_tokens", "gen_ai.request.seed", "gen_ai.request.choice.count"))
_PROVIDERS: Final[Mapping[str, str]] = {"llamacpp": "llama_cpp"}
_MOST = (1 << 63) - 1


def provider(engine: str) -> str:
    """Returns ``gen_ai.provider.name`` of an engine; the conventions list no self-hosted ones."""
    return _PROVIDERS.get(engine, engine)


@lru_cache(maxsize=1024, typed=True)  # most clients ask for the same
def request_attribute(field: str, value: float) -> tuple[str, int | float] | None:
    """Returns a request parameter as an attribute, of the type that its name demands; None if it cannot be one."""
    name = REQUEST_PARAMETERS[field]
    if isinstance(value, bool) or not abs(value) <= _MOST:  # nor what is not finite
        return None
    if name not in _WHOLE:
        return name, float(value)
    if value != int(value) or (field == "n" and value == 1):
        return None
    return name, int(value)
