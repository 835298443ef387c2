"""What was asked and answered, for pools whose operator wants it in the access log: the beginnings, and no more."""

from __future__ import annotations

from typing import NamedTuple

from adapters.failures import AdapterError
from adapters.json_values import as_object, objects, read_json
from adapters.types import AnswerFacts, EngineTimings, PlainChunk, StreamDecoder, Usage

from .config import CaptureConfig

# Of what a stream sends for a character, most is not the answer's: so many bytes are kept, and read once it has ended.
_STREAM_BYTES_PER_CHAR = 64
_DATA = b"data: "


class Content(NamedTuple):
    """The beginnings; None for what is not captured, or was not there.

    Attributes:
        prompt: Of the request's body.
        answer: Of the answer's text, reasoning included; of several choices, one after the other.
    """

    prompt: str | None = None
    answer: str | None = None


def prompt_of(raw: bytes, capture: CaptureConfig) -> str | None:
    """Returns the beginning of a request's body, if it is to be captured."""
    return _text(raw, capture.max_chars) if capture.prompts else None


def answer_of(body: bytes, capture: CaptureConfig) -> str | None:
    """Returns the beginning of a whole answer's text, if it is to be captured."""
    return _said(body)[: capture.max_chars] if capture.answers else None


class CapturingDecoder:
    """A stream's decoder that keeps the beginning of what it gives out; implements ``types.StreamDecoder``."""

    def __init__(self, decoder: StreamDecoder, capture: CaptureConfig) -> None:
        self._decoder = decoder
        self._max_chars = capture.max_chars
        self._room_bytes = capture.max_chars * _STREAM_BYTES_PER_CHAR
        self._kept: list[bytes] = []

    @property
    def outputs(self) -> int:
        return self._decoder.outputs

    @outputs.setter
    def outputs(self, outputs: int) -> None:
        self._decoder.outputs = outputs

    @property
    def plain(self) -> PlainChunk | None:
        """None: every read comes by here."""
        return None

    @property
    def usage(self) -> Usage | None:
        return self._decoder.usage

    @property
    def timings(self) -> EngineTimings | None:
        return self._decoder.timings

    @property
    def finished(self) -> bool:
        return self._decoder.finished

    @property
    def error(self) -> AdapterError | None:
        return self._decoder.error

    def feed(self, data: bytes) -> bytes:
        return self._keep(self._decoder.feed(data))

    def tokens(self) -> Usage:
        return self._decoder.tokens()

    def facts(self) -> AnswerFacts | None:
        return self._decoder.facts()

    def close(self) -> bytes:
        return self._keep(self._decoder.close())

    def answer(self) -> str:
        """Returns the beginning of the answer's text."""
        frames = b"".join(self._kept).split(b"\n\n")
        return "".join(_said(frame[len(_DATA) :]) for frame in frames if frame.startswith(_DATA))[: self._max_chars]

    def _keep(self, out: bytes) -> bytes:
        if self._room_bytes > 0:
            self._kept.append(out[: self._room_bytes])
            self._room_bytes -= len(out)
        return out


def _said(chunk: bytes) -> str:
    """The text in a chunk or a whole answer; "" for one that is cut."""
    try:
        fields = as_object(read_json(chunk))
    except ValueError:
        return ""
    said: list[str] = []
    for choice in objects((fields or {}).get("choices")):
        message = as_object(choice.get("delta")) or as_object(choice.get("message")) or choice
        said += [text for key in ("reasoning_content", "content", "text") if isinstance(text := message.get(key), str)]
    return "".join(said)


def _text(raw: bytes, max_chars: int) -> str:
    """The beginning of some UTF-8; a character that is cut at the end is left out."""
    return raw[: max_chars * 4].decode("utf-8", "replace")[:max_chars]
