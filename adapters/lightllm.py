"""LightLLM from v1.2 on; streams of older versions have no usable tool calls and may have no usage.

Everything goes to the OpenAI routes, text and token-id completions too. The native ``/generate_stream`` tells more of
a token (its id, its log-probability, usage so far), but loses more: one choice only, no ``response_format``, no
``echo``, one prompt even without a stream; each of its events would have to be written anew, its failures are all 417,
and ``--use_tgi_api`` puts another dialect in its place. ``/v1/completions`` counts the same tokens, once, in its last
chunk. What it cannot do, log-probabilities in a stream, is refused.

What a request needs is in ``lightllm_request`` and ``lightllm_messages``; what is put right in answers, streamed or
whole, in ``lightllm_answers``; errors are read in ``lightllm_errors``. A stream is answered by 200 before the prompt is
tokenised, so that the refusal of a long prompt is an event, after which no ``[DONE]`` comes. There is a usage chunk
whether asked for or not; builds between v1.1 and v1.2 want to be asked.

A whole answer is asked for as such: LightLLM notices a leaving client within 5 s either way.
"""

from __future__ import annotations

from dataclasses import dataclass

from .answer_ids import AnswerIds
from .lightllm_answers import LightLlmAnswers
from .lightllm_errors import read_lightllm_error
from .lightllm_request import encode_lightllm
from .openai_answer import WholeAnswer
from .openai_stream import OpenAiStream
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, UpstreamRequest


@dataclass(frozen=True, slots=True)
class LightLlm:
    """Implements ``types.Adapter``."""

    name: str = "lightllm"
    stream_type: str = "event-stream"
    idle_s: float = 4.0  # its server, hypercorn, closes at 5 s by default and at 10 s since August 2026
    health_path: str = "/health"  # instant, runs no model step; a stuck engine shows there after 200 s only

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        return encode_lightllm(request, model)

    def stream_decoder(self, request: GatewayRequest) -> OpenAiStream:
        ids = AnswerIds(request)
        return OpenAiStream(
            request.model,
            wants_usage=request.wants_usage,
            sends_done=True,
            prompt_tokens=request.prompt_estimate_tokens,
            repair=LightLlmAnswers(ids),
            ids=ids,
        )

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        ids = AnswerIds(request)
        return WholeAnswer(request.model, request.prompt_estimate_tokens, ids, repair=LightLlmAnswers(ids))

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        return read_lightllm_error(status, body)


LIGHTLLM = LightLlm()
