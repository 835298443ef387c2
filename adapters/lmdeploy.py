"""LMDeploy's api_server: OpenAI's dialect, with errors that have a flat body and, in a stream, ``[DONE]`` behind them.

It takes the penalties of OpenAI and does nothing with them; ``repetition_penalty`` works. ``/v1/embeddings`` is there
to answer that it is unsupported. ``min_p`` must be a number, so nulls are left out. A model that it does not know is
taken for a LoRA adapter.
"""

from __future__ import annotations

from dataclasses import dataclass

from .openai_compatible import OpenAiCompatible
from .openai_stream import OpenAiStream
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, Unsupported, UpstreamRequest

_DIALECT = OpenAiCompatible(
    name="lmdeploy",
    strip_nulls=True,
    sends_done=True,
    unread=(("presence_penalty", 0), ("frequency_penalty", 0), ("best_of", 1)),
)


@dataclass(frozen=True, slots=True)
class LmDeploy:
    """Implements ``types.Adapter``."""

    name: str = "lmdeploy"
    stream_type: str = "event-stream"
    idle_s: float = 4.0
    health_path: str = "/health"

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        if request.operation == "embeddings":
            raise Unsupported("lmdeploy cannot make embeddings: name a model of another engine (model)", "model")
        return _DIALECT.encode(request, model)

    def stream_decoder(self, request: GatewayRequest) -> OpenAiStream:
        return _DIALECT.stream_decoder(request)

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        return _DIALECT.answer_reader(request, head, streamed=streamed)

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        return _DIALECT.read_error(status, body)


LMDEPLOY = LmDeploy()
