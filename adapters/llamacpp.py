"""llama.cpp's server: OpenAI's dialect.

Without a stream it does not notice that the client left (it made all 400 tokens, recorded), so it is always asked for
one. It reports usage for each choice, and closes the connection after every stream although it announced keep-alive.
``best_of`` is taken and passed over.
"""

from __future__ import annotations

from .openai_compatible import OpenAiCompatible

LLAMACPP = OpenAiCompatible(
    name="llamacpp",
    idle_s=4.0,
    health_path="/health",
    stream_always=True,
    usage_per_choice=True,
    sends_done=True,
    unread=(("best_of", 1),),
)
