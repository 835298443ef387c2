"""The dialect that vLLM, SGLang, llama.cpp and most others share: OpenAI's own.

The engine gets the client's body, changed as little as can be: the engine's name of the model, and a request for usage
at the end of a stream. What else one engine does its own way is a field here, set in that engine's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .answer_ids import AnswerIds
from .bodies import SKELETON_BYTES, BadBody, edit, read_whole
from .json_values import as_object
from .openai_answer import EmbeddingsAnswer, StreamedAnswer, WholeAnswer
from .openai_errors import read_error
from .openai_stream import OpenAiStream
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, UpstreamRequest

_GENERATES = frozenset(("chat", "text_completion"))


@dataclass(frozen=True, slots=True)
class OpenAiCompatible:
    """An engine that speaks OpenAI's dialect; implements ``types.Adapter``.

    Attributes:
        strip_nulls: Leave out top-level fields that are null, which some engines refuse.
        stream_always: Ask for a stream although the client wants none: the engine notices a leaving client only then.
        usage_per_choice: It reports usage for each choice, not once for the request.
        sends_done: Every whole stream of its ends with ``[DONE]``; transformers' server never sends it.
        unread: Fields that tune the sampling and that it passes over, each with the value besides null that asks for
            nothing. They are left out and named, since the engine would not say so.
    """

    name: str = "openai"
    idle_s: float = 4.0
    health_path: str = "/v1/models"
    stream_type: str = "event-stream"
    strip_nulls: bool = False
    stream_always: bool = False
    usage_per_choice: bool = False
    sends_done: bool = False
    unread: tuple[tuple[str, float], ...] = ()

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        body, stream = request.body, request.stream
        add: dict[str, Any] = {}
        dropped: tuple[str, ...] = ()
        if request.operation in _GENERATES:
            dropped = tuple([key for key, nothing in self.unread if body.get(key, nothing) not in (nothing, None)])
            if not stream and self.stream_always and not (body.get("logprobs") and body.get("tools")):
                stream = True  # llama.cpp answers 400 to logprobs with tools in a stream
                add["stream"] = True
            if stream and not request.wants_usage:
                add["stream_options"] = request.options_for_usage()
        nulls = [key for key, value in body.items() if value is None and key not in add] if self.strip_nulls else ()
        raw = request.raw
        if add or nulls or dropped or body.get("model", model) != model:
            try:
                raw = edit(raw, body, model=model, add=add, drop=(*nulls, *dropped))
            except BadBody as error:
                raise EngineFailed(400, str(error)) from error
        return UpstreamRequest(request.path, raw, stream, dropped)

    def stream_decoder(self, request: GatewayRequest) -> OpenAiStream:
        options = as_object(request.body.get("stream_options")) or {}
        running = bool(options.get("continuous_usage_stats"))
        return self._decoder(request, wants_usage=request.wants_usage, running_usage=running)

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        if request.operation == "embeddings":
            return EmbeddingsAnswer(request.model)
        if streamed and self.stream_type in head.content_type:
            decoder = self._decoder(request, wants_usage=True, running_usage=False)
            return StreamedAnswer(decoder, chat=request.operation == "chat")
        return WholeAnswer(request.model, request.prompt_estimate_tokens, AnswerIds(request))

    def _decoder(self, request: GatewayRequest, *, wants_usage: bool, running_usage: bool) -> OpenAiStream:
        n = request.body.get("n")
        return OpenAiStream(
            request.model,
            wants_usage=wants_usage,
            running_usage=running_usage,
            choices_per_prompt=n if isinstance(n, int) and n > 0 else 1,
            usage_per_choice=self.usage_per_choice,
            sends_done=self.sends_done,
            prompt_tokens=request.prompt_estimate_tokens,
            ids=AnswerIds(request),
        )

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        return read_error(status, body)


def whole_body(request: GatewayRequest) -> Mapping[str, Any]:
    """Returns the request with its long strings, which ``body`` may lack.

    Raises:
        EngineFailed: It is not JSON, in a part that was not looked at before (400).
    """
    if len(request.raw) <= SKELETON_BYTES:
        return request.body
    try:
        return read_whole(request.raw)
    except BadBody as error:
        raise EngineFailed(400, str(error)) from error
