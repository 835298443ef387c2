"""The dialect that vLLM, SGLang, llama.cpp and most others share: OpenAI's own.

The engine gets the client's body, changed as little as can be: the engine's name of the model, and a request for usage
at the end of a stream. What else one engine does its own way is a field here, set in that engine's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .answer_ids import AnswerIds
from .bodies import SKELETON_BYTES, BadBody, edit, read_whole
from .foreign_fields import NOTHING_KNOWN, Change, ForeignFields
from .json_values import as_object
from .openai_answer import EmbeddingsAnswer, StreamedAnswer, WholeAnswer
from .openai_errors import read_error
from .openai_stream import OpenAiStream
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, UpstreamRequest

_GENERATES = frozenset(("chat", "text_completion"))
_NO_CHANGE = Change({}, (), ())


@dataclass(frozen=True, slots=True)
class OpenAiCompatible:
    """An engine that speaks OpenAI's dialect; implements ``types.Adapter``.

    Attributes:
        strip_nulls: Leave out top-level fields that are null, which some engines refuse.
        stream_always: Ask for a stream although the client wants none: the engine notices a leaving client only then.
        usage_per_choice: It reports usage for each choice, not once for the request.
        sends_done: Every whole stream of its ends with ``[DONE]``; transformers' server never sends it.
        foreign: What becomes of other engines' fields, and of those that it passes over.
        foreign_names: Their names.
    """

    name: str = "openai"
    idle_s: float = 4.0
    health_path: str = "/v1/models"
    stream_type: str = "event-stream"
    strip_nulls: bool = False
    stream_always: bool = False
    usage_per_choice: bool = False
    sends_done: bool = False
    foreign: ForeignFields = NOTHING_KNOWN
    foreign_names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "foreign_names", self.foreign.all())

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        body, stream = request.body, request.stream
        add: dict[str, Any] = {}
        change = _NO_CHANGE
        if request.operation in _GENERATES:
            if not stream and self.stream_always and not (body.get("logprobs") and body.get("tools")):
                stream = True  # llama.cpp answers 400 to logprobs with tools in a stream
                add["stream"] = True
            if stream and not request.wants_usage:
                add["stream_options"] = request.options_for_usage()
            if not self.foreign_names.isdisjoint(body):
                change = self.foreign.change(self.name, whole_body(request))
                add |= change.add
        drop = [*change.drop]
        if self.strip_nulls:
            drop += [key for key, value in body.items() if value is None and key not in add]
        raw = request.raw
        if add or drop or body.get("model", model) != model:
            try:
                raw = edit(raw, body, model=model, add=add, drop=drop)
            except BadBody as error:
                raise EngineFailed(400, str(error)) from error
        return UpstreamRequest(request.path, raw, stream, change.dropped)

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
