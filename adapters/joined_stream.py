"""Decoder of the rest of an answer: its chunks go on where those of another engine ended, as if they were its own."""

from __future__ import annotations

from .answer_facts import AnswerFacts
from .continuation import Rest
from .failures import AdapterError
from .json_values import Json, as_object, objects, write_json
from .openai_shape import OUTPUT_KEYS, has_output
from .openai_stream import OpenAiStream
from .said import Said
from .types import EngineTimings, PlainChunk, Usage


class NotJoined(AdapterError):
    """The engine went on, but not where the answer had broken off."""


class JoinedStream:
    """Implements ``types.StreamDecoder``.

    Args:
        decoder: Of the engine that goes on.
        rest: What it was asked.
        said: What had been said; grows.
    """

    plain: PlainChunk | None = None
    """None: every chunk is written anew."""

    def __init__(self, decoder: OpenAiStream, rest: Rest, said: Said) -> None:
        self.outputs = 0
        self._decoder = decoder
        self._rest = rest
        self._said = said
        self._said_bytes = len(said.quoted)
        self._repeats = rest.repeats
        self._held: str = ""
        self._begun = False
        self._error: NotJoined | None = None
        self._out: list[bytes] = []
        decoder.begin_in_answer()
        decoder.tell(self._take)

    @property
    def usage(self) -> Usage | None:
        """Of the second request alone."""
        return self._decoder.usage

    @property
    def timings(self) -> EngineTimings | None:
        return self._decoder.timings

    @property
    def finished(self) -> bool:
        return self._decoder.finished and self._error is None

    @property
    def error(self) -> AdapterError | None:
        return self._error or self._decoder.error

    def feed(self, data: bytes) -> bytes:
        if self._error is not None:
            return b""
        self._decoder.feed(data)
        return self._taken()

    def tokens(self) -> Usage:
        return self._decoder.tokens()

    def facts(self) -> AnswerFacts | None:
        """Of the second answer alone."""
        return self._decoder.facts()

    def joined_tokens(self) -> Usage:
        """Returns the counts of the whole answer: its first prompt, and all that was said."""
        own, counted = self.tokens(), self._rest.counted
        prompt_tokens = max(own.prompt_tokens - counted.told, 0)
        if own.estimated:  # by the bytes of the request that goes on
            prompt_tokens = self._rest.prompt_estimate_tokens
        return Usage(
            prompt_tokens,
            counted.given + (0 if self._rest.ended else own.completion_tokens),
            None if own.cached_tokens is None else min(own.cached_tokens, prompt_tokens),
            own.reasoning_tokens,
            own.estimated or self._rest.estimated,
        )

    def close(self) -> bytes:
        said_bytes, unfit = len(self._said.quoted), self._said.unfit
        try:
            self._decoder.close()
            if self._error is not None:
                raise self._error
        except AdapterError:
            self._said.back_to(said_bytes, unfit)  # what came with the end is not given to the client
            raise
        return self._taken()

    def forget(self) -> None:
        """Nothing of this went to the client."""
        self._said.back_to(self._said_bytes, None)

    def _taken(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    # --- chunks

    def _take(self, chunk: Json) -> None:
        if self._error is not None:
            return
        choices = objects(chunk.get("choices"))
        if usage := as_object(chunk.get("usage")):
            self._join_usage(usage)
        try:
            shown = [self._join(choice) for choice in choices]
        except NotJoined as error:
            self._error = error
            return
        if choices and not any(shown):
            return
        chunk = {**chunk, **self._said.head, "model": self._decoder.model}  # the decoder keeps its own
        self.outputs += any(has_output(choice) for choice in choices)
        self._said.take(chunk)
        self._out.append(b"data: %b\n\n" % write_json(chunk, b""))

    def _join(self, choice: Json) -> bool:
        """Puts a choice right, in place. Returns whether it says anything."""
        delta = as_object(choice.get("delta"))
        holder, key = (choice, "text") if delta is None else (delta, "content")
        if delta is not None:
            delta.pop("role", None)
            if any(delta.get(other) for other in OUTPUT_KEYS if other != "content"):
                raise NotJoined("the engine went on with something else than text")
        text = holder.get(key)
        if isinstance(text, str) and text:
            text = holder[key] = "" if self._rest.ended else self._join_text(text)
        if choice.get("finish_reason"):
            if self._rest.ended:
                choice["finish_reason"] = "length"
            return True
        return bool(text)

    def _join_text(self, text: str) -> str:
        """Returns what is new of it."""
        if not self._begun:
            self._begun = True
            if self._rest.echo and text.startswith(self._rest.echo):
                text = text[len(self._rest.echo) :]
        if not self._repeats:
            return text
        text = self._held + text
        if text.startswith(self._repeats):
            text, self._repeats = text[len(self._repeats) :], ""
            return text
        if not self._repeats.startswith(text):
            raise NotJoined("the engine went on with other white space than had been given")
        self._held = text
        return ""

    def _join_usage(self, usage: Json) -> None:
        joined = self.joined_tokens()
        usage["prompt_tokens"] = joined.prompt_tokens
        usage["completion_tokens"] = joined.completion_tokens
        usage["total_tokens"] = joined.prompt_tokens + joined.completion_tokens
        if joined.cached_tokens is not None and (details := as_object(usage.get("prompt_tokens_details"))):
            details["cached_tokens"] = joined.cached_tokens
        if joined.estimated:
            usage["weir_estimated"] = True
