"""vLLM: OpenAI's dialect, without ``best_of``, which it takes and passes over.

Its server closes idle connections after 5 s; /health is instant and runs no model step.
"""

from __future__ import annotations

from .openai_compatible import OpenAiCompatible

VLLM = OpenAiCompatible(name="vllm", idle_s=4.0, health_path="/health", sends_done=True, unread=(("best_of", 1),))
