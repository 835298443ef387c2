"""Ollama's own API: ``/api/chat``, ``/api/generate`` and ``/api/embed``; NDJSON, one JSON object a line.

Its ``/v1`` loses the text of errors inside a stream, ignores max_completion_tokens, knows no top_k, and tells no
durations; so only what is not translated here goes there.
"""

from __future__ import annotations

from dataclasses import dataclass

from .json_values import write_json
from .ollama_answer import OllamaAnswer, OllamaEmbeddings
from .ollama_errors import read_refusal
from .ollama_request import chat, completion, embeddings
from .ollama_stream import OllamaStream
from .openai_compatible import OpenAiCompatible, whole_body
from .types import AnswerHead, AnswerReader, EngineFailed, GatewayRequest, MalformedStream, UpstreamRequest

_V1 = OpenAiCompatible(name="ollama")


@dataclass(frozen=True, slots=True)
class Ollama:
    """Implements ``types.Adapter``.

    The engine notices a leaving client with and without a stream, so it is asked for one only if the client wants one.
    Its server closes no idle connection; what stands between may.
    """

    name: str = "ollama"
    idle_s: float = 4.0
    stream_type: str = "ndjson"
    health_path: str = "/api/version"  # "/" is answered so by any web server; neither says that a model is loaded

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        match request.operation:
            case "chat":
                path, (native, dropped) = "/api/chat", chat(whole_body(request))
            case "text_completion":
                path, (native, dropped) = "/api/generate", completion(whole_body(request))
            case "embeddings":
                path, (native, dropped) = "/api/embed", embeddings(whole_body(request))
            case _:
                return _V1.encode(request, model)
        native["model"] = request.model if model is None else model
        if request.operation != "embeddings":
            native["stream"] = request.stream  # left out, it would mean a stream
        try:
            body = write_json(native, b"")
        except MalformedStream as error:
            raise EngineFailed(400, "the request body is nested too deeply") from error
        return UpstreamRequest(path, body, request.stream, dropped)

    def stream_decoder(self, request: GatewayRequest) -> OllamaStream:
        return OllamaStream(request)

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        return OllamaEmbeddings(request) if request.operation == "embeddings" else OllamaAnswer(request)

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        return read_refusal(status, body)


OLLAMA = Ollama()
