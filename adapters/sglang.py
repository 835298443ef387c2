"""SGLang: OpenAI's dialect, but explicit nulls are refused in plain fields, and errors have a flat body.
``best_of`` is taken and passed over.

/health runs a token and takes a second or more; /ready answers at once.
"""

from __future__ import annotations

from .openai_compatible import OpenAiCompatible

SGLANG = OpenAiCompatible(
    name="sglang", idle_s=4.0, health_path="/ready", strip_nulls=True, sends_done=True, unread=(("best_of", 1),)
)
