"""vLLM: OpenAI's dialect, without ``best_of``, which it takes and passes over.

Its server closes idle connections after 5 s; /health is instant and runs no model step.
"""

from __future__ import annotations

from .foreign_fields import TO_REPETITION, ForeignFields, unread
from .openai_compatible import OpenAiCompatible

_FOREIGN = ForeignFields(
    unknown=frozenset(("json_schema", "regex", "ebnf", "grammar")),
    unread=unread("best_of", "typical_p", "repeat_last_n"),
    renamed=TO_REPETITION,
    guided=True,
)
VLLM = OpenAiCompatible(name="vllm", idle_s=4.0, health_path="/health", sends_done=True, foreign=_FOREIGN)
