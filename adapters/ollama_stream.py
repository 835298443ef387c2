"""Decoder of ``/api/chat`` and ``/api/generate`` streams: NDJSON in, OpenAI's chunks out."""

from __future__ import annotations

from .answer_ids import AnswerIds
from .framing import NdjsonFramer
from .json_values import Json, write_json
from .logprobs import text_logprobs
from .ollama_lines import AnswerLines, Piece, usage_json
from .openai_shape import both_reasoning_names
from .types import (
    AdapterError,
    EngineTimings,
    GatewayRequest,
    MalformedStream,
    PlainChunk,
    TruncatedStream,
    Usage,
)


class OllamaStream:
    """Implements ``types.StreamDecoder``."""

    __slots__ = (
        "_begun",
        "_chat",
        "_framer",
        "_head",
        "_lines",
        "_text_chars",
        "_text_key",
        "_wants_usage",
        "error",
        "finished",
        "outputs",
        "plain",
        "timings",
        "usage",
    )

    def __init__(self, request: GatewayRequest) -> None:
        self.outputs = 0
        self.usage: Usage | None = None
        self.plain: PlainChunk | None = None
        self.finished = False
        self.error: AdapterError | None = None
        self.timings: EngineTimings | None = None
        self._chat = request.operation == "chat"
        self._text_key = "content" if self._chat else "text"
        self._wants_usage = request.wants_usage
        self._framer = NdjsonFramer()
        self._lines = AnswerLines(request)
        self._begun = False
        self._text_chars = 0
        head: Json = {**envelope(request, chunk=True), "choices": []}
        self._head = b"data: %b" % write_json(head, b"")[:-2]

    def feed(self, data: bytes) -> bytes:
        if self.finished or self.error is not None:
            return b""
        try:
            lines = self._framer.feed(data)
        except MalformedStream as error:
            self.error = error
            return b""
        return self._read(lines)

    def tokens(self) -> Usage:
        return self._lines.tokens(self.outputs)

    def close(self) -> bytes:
        out = b""
        if not self.finished and self.error is None:
            out = self._last_line()
        if self.error is not None:
            raise self.error
        if not self.finished:
            raise TruncatedStream("the engine's stream ended before the answer was finished")
        return out

    def _last_line(self) -> bytes:
        """Reads the line that no line feed ended. If that is because it was cut, the answer is, and not malformed."""
        try:
            out = self._read(self._framer.close())
        except MalformedStream as error:
            self.error = error
            return b""
        if isinstance(self.error, MalformedStream):
            self.error = None
        return out

    def _read(self, lines: list[bytes]) -> bytes:
        out: list[bytes] = []
        for line in lines:
            try:
                piece = self._lines.read(line)
            except AdapterError as error:
                self.error = error
                break
            self._add(piece, out)
            if self._lines.finish is not None:
                self._end(self._lines.finish, out)
                break
        return b"".join(out)

    def _add(self, piece: Piece, out: list[bytes]) -> None:
        """Appends the chunks for what a line adds: reasoning in one of its own, as clients read one or the other."""
        text, thinking, calls, logprobs = piece
        if thinking:
            told: Json = {"reasoning": thinking}
            both_reasoning_names(told)
            self.outputs += 1
            out.append(self._chunk(told, logprobs))
            logprobs = []
        if text or calls:
            self.outputs += 1
            more: Json = {self._text_key: text} if text else {}
            if calls:
                more["tool_calls"] = calls
            out.append(self._chunk(more, logprobs))
        elif logprobs:
            out.append(self._chunk({self._text_key: ""}, logprobs))

    def _end(self, finish: str, out: list[bytes]) -> None:
        out.append(self._chunk({} if self._begun else {self._text_key: ""}, [], finish))
        self.finished = True
        self.timings = self._lines.timings
        if self._lines.prompt_tokens is not None or self._lines.completion_tokens is not None:
            self.usage = self.tokens()
        if self._wants_usage:
            out.append(b'%b],"usage":%b}\n\n' % (self._head, write_json(usage_json(self.tokens()), b"")))

    def _chunk(self, told: Json, logprobs: list[Json], finish: str | None = None) -> bytes:
        if self._chat:
            choice: Json = {"index": 0, "delta": told if self._begun else {"role": "assistant", **told}}
            if logprobs:
                choice["logprobs"] = {"content": logprobs}
        else:
            choice = {"index": 0, "text": "", **told, "logprobs": None}
            if logprobs:
                choice["logprobs"] = text_logprobs(logprobs, self._text_chars)
            self._text_chars += len(choice["text"])
        choice["finish_reason"] = finish
        self._begun = True
        return b"%b%b]}\n\n" % (self._head, write_json(choice, b""))


def envelope(request: GatewayRequest, *, chunk: bool) -> Json:
    """What stands around the choices: Ollama's own ids are none, or random numbers below 999."""
    kind = "text_completion"
    if request.operation == "chat":
        kind = "chat.completion.chunk" if chunk else "chat.completion"
    return {
        "id": AnswerIds(request).answer,
        "object": kind,
        "created": request.created_unix_s,
        "model": request.model,
    }
