"""TensorRT-LLM's trtllm-serve: OpenAI's dialect, with flat errors, or ``{"error": "text"}`` from its checks.

A stream that fails after its 200 just breaks off: no error event, no ``[DONE]``. Numbers such as ``n`` and ``top_k``
must be numbers, so nulls are left out. /health is instant; /health_generate would run a generation.
"""

from __future__ import annotations

from .openai_compatible import OpenAiCompatible

TRTLLM = OpenAiCompatible(name="trtllm", idle_s=4.0, health_path="/health", strip_nulls=True, sends_done=True)
