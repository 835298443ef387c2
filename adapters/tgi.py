"""Hugging Face text-generation-inference (TGI), version 3. Its last line is 3.3: it is no longer developed.

Chat goes to ``/v1/chat/completions``: templates and tools live there. So do text completions to ``/v1/completions``,
although the native ``/generate_stream`` knows more (log probabilities, token ids, ``top_k``, an error's kind): it takes
one prompt where OpenAI's takes several, under another name, so that every prompt would have to be written anew, and its
whole answers do not count the prompt's tokens. What is lost by that is refused (``logprobs``, ``echo``) or named as
dropped (``top_k``); an error's kind is told by how its message begins. TGI has no embeddings.

Both are near OpenAI's dialect, and yet apart from it in both directions: what a request needs is in ``tgi_request`` and
``tgi_messages``, what a stream or an answer needs in ``tgi_chunks`` and ``tgi_answer``, errors are read in
``tgi_errors``. A stream is answered by 200 before the request is looked at: its refusals are events.

A whole answer is asked for as such: TGI notices a leaving client either way, answers an overload by a true 429 there,
and tells its own timings in headers that a stream does not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from .answer_ids import AnswerIds
from .engine_timings import tgi_timings
from .openai_answer import EmbeddingsAnswer, WholeAnswer
from .openai_stream import OpenAiStream
from .tgi_answer import TgiAnswers
from .tgi_chunks import TgiChunks
from .tgi_errors import read_tgi_error
from .tgi_request import encode_tgi
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, UpstreamRequest


@dataclass(frozen=True, slots=True)
class Tgi:
    """Implements ``types.Adapter``.

    The name an endpoint has for its model is the id of a LoRA adapter here. Any other name, also ``tgi``, is the base
    model: TGI never says that it does not know one.
    """

    name: str = "tgi"
    stream_type: str = "event-stream"
    idle_s: float = 4.0  # its server closes no idle connection; whatever stands before it may
    health_path: str = "/health"  # after a failure it generates one token: may take more than a second then

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        return encode_tgi(request, model)

    def stream_decoder(self, request: GatewayRequest) -> OpenAiStream:
        ids = AnswerIds(request)
        return OpenAiStream(
            request.model,
            wants_usage=request.wants_usage,
            usage_per_choice=True,  # of several prompts, each has its own
            sends_done=True,
            prompt_tokens=request.prompt_estimate_tokens,
            repair=TgiChunks(ids, chat=request.operation == "chat"),
            ids=ids,
        )

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        if request.operation == "embeddings":
            return EmbeddingsAnswer(request.model)
        ids = AnswerIds(request)
        return WholeAnswer(
            request.model, request.prompt_estimate_tokens, ids, repair=TgiAnswers(ids), timings=tgi_timings(head)
        )

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        return read_tgi_error(status, body)


TGI = Tgi()
