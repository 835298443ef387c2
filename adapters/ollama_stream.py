"""Decoder of ``/api/chat`` and ``/api/generate`` streams: NDJSON in, OpenAI's chunks out.

JSON is parsed until a line has been seen that holds text and nothing else that must be read. Lines that differ from it
in date and text only are rewritten by a template; whatever else comes is parsed, as in ``openai_stream``.
"""

from __future__ import annotations

from .answer_facts import AnswerFacts
from .framing import NdjsonFramer
from .json_values import Json
from .ollama_chunks import AnswerChunks
from .ollama_lines import AnswerLines, Piece
from .ollama_template import LineTemplate, line_template
from .types import (
    AdapterError,
    EngineTimings,
    GatewayRequest,
    MalformedStream,
    PlainChunk,
    TruncatedStream,
    Usage,
)

_REASONING = ("reasoning", "reasoning_content")  # clients read one or the other


class OllamaStream:
    """Implements ``types.StreamDecoder``."""

    __slots__ = (
        "_chunks",
        "_framer",
        "_learned",
        "_learns",
        "_line_key",
        "_lines",
        "_template",
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
        chat = request.operation == "chat"
        self._wants_usage = request.wants_usage
        self._framer = NdjsonFramer()
        self._lines = AnswerLines(request)
        self._chunks = AnswerChunks(request)
        self._line_key = b"content" if chat else b"response"
        self._learns = chat or not request.body.get("logprobs")  # those of a text tell how long the text before is
        self._learned: LineTemplate | None = None
        self._template: LineTemplate | None = None  # the same where a read begins with a line, and lines are wanted

    def feed(self, data: bytes) -> bytes:
        out: list[bytes] = []
        at = 0
        while at < len(data):
            template = self._template
            if template is not None:
                before = len(out)
                at = template.rewrite(data, at, out)
                self.outputs += len(out) - before
                if at == len(data):
                    break
            # One line that the template does not fit, or not yet: a fast engine's whole answer may come in one read
            end = data.find(b"\n", at) + 1 or len(data)
            out.append(self._feed_lines(data[at:end]))
            at = end
            if self.finished or self.error is not None:
                break
        return b"".join(out)

    def tokens(self) -> Usage:
        return self._lines.tokens(self.outputs)

    def facts(self) -> AnswerFacts | None:
        return self._lines.facts()

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

    def _feed_lines(self, data: bytes) -> bytes:
        if self.finished or self.error is not None:
            return b""
        try:
            lines = self._framer.feed(data)
        except MalformedStream as error:
            self.error = error
            lines = []
        out = self._read(lines)
        wanted = not self.finished and self.error is None and not self._framer.pending_bytes
        self._template = self._learned if wanted else None
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
            self._learn(line, piece)
        return b"".join(out)

    def _add(self, piece: Piece, out: list[bytes]) -> None:
        """Appends the chunks for what a line adds, reasoning in one of its own."""
        text, thinking, calls, logprobs = piece
        if thinking:
            self.outputs += 1
            out.append(self._chunks.write(dict.fromkeys(_REASONING, thinking), logprobs))
            logprobs = []
        if text or calls:
            self.outputs += 1
            more: Json = {self._chunks.text_key: text} if text else {}
            if calls:
                more["tool_calls"] = calls
            out.append(self._chunks.write(more, logprobs))
        elif logprobs:
            out.append(self._chunks.write({self._chunks.text_key: ""}, logprobs))

    def _learn(self, line: bytes, piece: Piece) -> None:
        """Takes a line as the template, if it holds text or reasoning, and nothing else."""
        text, thinking, calls, logprobs = piece
        if bool(text) == bool(thinking) or calls or logprobs or not self._learns or not self._lines.settled:
            return
        if thinking:
            template = line_template(line, b"thinking", thinking, self._chunks.around(*_REASONING))
        else:
            template = line_template(line, self._line_key, text, self._chunks.around(self._chunks.text_key))
        if template is not None:
            self._learned = template

    def _end(self, finish: str, out: list[bytes]) -> None:
        out.append(self._chunks.write({} if self._chunks.begun else {self._chunks.text_key: ""}, finish=finish))
        self.finished = True
        self.timings = self._lines.timings
        if self._lines.prompt_tokens is not None or self._lines.completion_tokens is not None:
            self.usage = self.tokens()
        if self._wants_usage:
            out.append(self._chunks.write_usage(self.tokens()))
