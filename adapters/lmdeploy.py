"""LMDeploy's api_server: OpenAI's dialect, with errors that have a flat body and, in a stream, ``[DONE]`` behind them.

It takes the penalties of OpenAI and does nothing with them; ``repetition_penalty`` works. ``/v1/embeddings`` is there
to answer that it is unsupported. ``min_p`` must be a number, so nulls are left out. A model that it does not know is
taken for a LoRA adapter.
"""

from __future__ import annotations

from dataclasses import dataclass

from .bodies import BadBody, edit
from .foreign_fields import TO_REPETITION, ForeignFields, unknown_but
from .openai_compatible import OpenAiCompatible
from .openai_stream import OpenAiStream
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, Unsupported, UpstreamRequest

_FOREIGN = ForeignFields(
    unknown=unknown_but("return_token_ids"), unread=frozenset(("typical_p", "repeat_last_n")), renamed=TO_REPETITION
)
_DIALECT = OpenAiCompatible(name="lmdeploy", strip_nulls=True, sends_done=True, foreign=_FOREIGN)
_WITHOUT_EFFECT = ("presence_penalty", "frequency_penalty")


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
        dropped = tuple(key for key in _WITHOUT_EFFECT if request.body.get(key)) if request.operation != "other" else ()
        if dropped:
            try:
                raw = edit(request.raw, request.body, drop=dropped)
            except BadBody as error:
                raise EngineFailed(400, str(error)) from error
            body = {key: value for key, value in request.body.items() if key not in dropped}
            request = request._replace(raw=raw, body=body)
        upstream = _DIALECT.encode(request, model)
        return upstream._replace(dropped=dropped + upstream.dropped)

    def stream_decoder(self, request: GatewayRequest) -> OpenAiStream:
        return _DIALECT.stream_decoder(request)

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        return _DIALECT.answer_reader(request, head, streamed=streamed)

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        return _DIALECT.read_error(status, body)


LMDEPLOY = LmDeploy()
