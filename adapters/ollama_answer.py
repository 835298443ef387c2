"""Whole answers of Ollama, streamed or not, in OpenAI's shape."""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from typing import Any

from .framing import NdjsonFramer
from .json_values import Json, as_list, write_json
from .logprobs import text_logprobs
from .ollama_chunks import envelope
from .ollama_errors import unwrapped
from .ollama_lines import AnswerLines, Piece, ollama_timings, usage_json
from .openai_answer import MAX_ANSWER_BYTES, AnswerBody, answer_object, bounded
from .openai_errors import error_in
from .openai_shape import both_reasoning_names, read_usage
from .types import (
    BYTES_PER_TOKEN,
    Answer,
    GatewayRequest,
    MalformedStream,
    TruncatedStream,
    Usage,
)


class OllamaAnswer:
    """An answer of ``/api/chat`` or ``/api/generate``; implements ``types.AnswerReader``.

    Attributes:
        outputs: Lines with output so far.
    """

    def __init__(self, request: GatewayRequest) -> None:
        self.outputs = 0
        self._chat = request.operation == "chat"
        self._envelope = envelope(request, chunk=False)
        self._framer = NdjsonFramer(MAX_ANSWER_BYTES)
        self._lines = AnswerLines(request)
        self._size_bytes = 0
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[Json] = []
        self._logprobs: list[Json] = []

    def feed(self, data: bytes) -> None:
        self._size_bytes = bounded(self._size_bytes + len(data))
        self._read(self._framer.feed(data))

    def close(self) -> Answer:
        if self._lines.finish is None:
            self._read(self._framer.close())
        if self._lines.finish is None:
            raise TruncatedStream("the engine's answer ended before it was finished")
        text, thinking = "".join(self._text), "".join(self._thinking)
        told_bytes = len(f"{thinking}{text}".encode("utf-8", "surrogatepass"))
        usage = self._lines.tokens(max(self.outputs, told_bytes // BYTES_PER_TOKEN))
        choice: Json = {"index": 0, **self._told(text, thinking), "finish_reason": self._lines.finish}
        answer = {**self._envelope, "choices": [choice], "usage": usage_json(usage)}
        return Answer(write_json(answer, b""), usage, 1, self._lines.timings, answer, self._lines.model)

    def _read(self, lines: list[bytes]) -> None:
        for line in lines:
            if self._lines.finish is not None:
                return
            self._add(self._lines.read(line))

    def _add(self, piece: Piece) -> None:
        self.outputs += bool(piece.text or piece.thinking or piece.calls)
        if piece.text:
            self._text.append(piece.text)
        if piece.thinking:
            self._thinking.append(piece.thinking)
        self._calls += piece.calls
        self._logprobs += piece.logprobs

    def _told(self, text: str, thinking: str) -> Json:
        reasoning: Json = {"reasoning": thinking} if thinking else {}
        both_reasoning_names(reasoning)
        logprobs = self._logprobs
        if not self._chat:
            return {"text": text, **reasoning, "logprobs": text_logprobs(logprobs, 0) if logprobs else None}
        message: Json = {"role": "assistant", "content": None if self._calls and not text else text, **reasoning}
        if self._calls:
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in self._calls
            ]
        return {"message": message, "logprobs": {"content": logprobs} if logprobs else None}


class OllamaEmbeddings(AnswerBody):
    """An answer of ``/api/embed``: ``{"embeddings": [[...], ...], "prompt_eval_count"}``."""

    def __init__(self, request: GatewayRequest) -> None:
        super().__init__()
        self._model = request.model
        self._base64 = request.body.get("encoding_format") == "base64"
        self._prompt_estimate = request.prompt_estimate_tokens

    def close(self) -> Answer:
        body = self.body()
        fields = answer_object(body)
        if (failed := error_in(fields)) is not None:
            raise unwrapped(failed)
        vectors = as_list(fields.get("embeddings"))
        if vectors is None:
            raise MalformedStream("the engine's answer has no embeddings")
        data = [
            {"object": "embedding", "index": at, "embedding": self._encoded(vector)}
            for at, vector in enumerate(vectors)
        ]
        usage = read_usage({"prompt_tokens": fields.get("prompt_eval_count")})
        told = usage or Usage(self._prompt_estimate, 0, estimated=True)
        counts = usage_json(told)
        del counts["completion_tokens"]  # nothing is completed
        answer: Json = {"object": "list", "data": data, "model": self._model, "usage": counts}
        return Answer(write_json(answer, body), told, 1, ollama_timings(fields), model=fields.get("model"))

    def _encoded(self, vector: Any) -> Any:
        numbers = as_list(vector)
        if numbers is None:
            raise MalformedStream("the engine's answer holds an embedding that is no list")
        try:
            packed = array("f", numbers)
        except (TypeError, OverflowError) as error:
            raise MalformedStream("the engine's answer holds an embedding that is not of numbers") from error
        if not self._base64:
            return numbers
        if sys.byteorder == "big":
            packed.byteswap()
        return b64encode(packed.tobytes()).decode("ascii")
