"""SGLang: OpenAI's dialect, but explicit nulls are refused in plain fields, and errors have a flat body.
``best_of`` is taken and passed over.

/health runs a token and takes a second or more; /ready answers at once.
"""

from __future__ import annotations

from .foreign_fields import TO_REPETITION, ForeignFields, unknown_but, unread
from .openai_compatible import OpenAiCompatible

_FOREIGN = ForeignFields(
    unknown=unknown_but("json_schema", "regex", "ebnf", "return_token_ids"),
    unread=unread("best_of", "typical_p", "repeat_last_n"),
    renamed=TO_REPETITION,
)
SGLANG = OpenAiCompatible(
    name="sglang", idle_s=4.0, health_path="/ready", strip_nulls=True, sends_done=True, foreign=_FOREIGN
)
