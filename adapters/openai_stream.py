"""Decoder of ``/v1/chat/completions`` and ``/v1/completions`` streams of OpenAI-speaking engines.

``data: {chunk}`` events, ``data: [DONE]`` at the end. JSON is parsed until a plain chunk has been seen: one that holds
text and nothing that must be read. What stands before and after its text is kept as a template, and a chunk that
differs from it in the text only goes to the client as it came or, if the template's had to change, changed alike.
Whatever else comes is parsed again: finish reasons, usage, tool calls, reasoning, errors cannot be missed, whichever
way an engine spells them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import orjson

from .answer_facts import AnswerFacts, answer_facts
from .answer_ids import AnswerIds
from .engine_timings import timings_in
from .framing import SseFramer
from .json_values import Json, as_object, objects, read_json, write_json
from .logprobs import as_text_logprobs
from .openai_errors import error_in
from .openai_shape import (
    ToolCalls,
    add_usage,
    both_reasoning_names,
    estimated_usage,
    finish_reason,
    has_output,
    index_of,
    public_usage,
    read_usage,
)
from .said import Said
from .think_tags import ThinkTags, split_delta
from .types import AdapterError, EngineTimings, MalformedStream, PlainChunk, TruncatedStream, Usage

# A chunk without choices that holds nothing else is not for clients.
_ENVELOPE = frozenset(
    (
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
        "system_fingerprint",
        "service_tier",
        "timings",
        "metrics",
        "error",
    )
)
# Where a plain chunk has its text: chat, then completions. Engines write the colon with or without a space.
_TEXT_KEYS = (b'"content":', b'"content": ', b'"text":', b'"text": ')


class ChunkRepair(Protocol):
    """Brings one stream of an engine that strays from OpenAI's dialect back to it."""

    def repair(self, chunk: Json, /) -> bool:
        """Changes a chunk in place before anything else is read of it. Returns whether it did.

        After the first chunk with output, chunks that differ in plain text only must be changed alike.

        Raises:
            AdapterError: The chunk says that the answer failed.
        """
        ...

    def ending(self) -> Json | None:
        """Returns the chunk that the engine left unsaid before its end marker, or None."""
        ...


class OpenAiStream:
    """Implements ``types.StreamDecoder``.

    Args:
        model: The name that the client is to read.
        wants_usage: Whether the client asked for a usage chunk.
        running_usage: Whether it asked for usage on every chunk (vLLM's and SGLang's ``continuous_usage_stats``).
        choices_per_prompt: ``n`` of the request.
        usage_per_choice: Whether the engine reports usage for each choice instead of once.
        prompt_tokens: An estimate, for engines that report no usage.
        sends_done: Whether this engine ends every whole stream with ``[DONE]``, so that one without it is cut.
        repair: What puts the engine's chunks right, if they are not.
        ids: What is called by them if the engine gave no id: the answer, a tool call. None leaves it without.

    Attributes:
        said: Keeps what goes to the client, if somebody is to go on with it one day.
    """

    __slots__ = (
        "_choices_per_prompt",
        "_done",
        "_finish",
        "_framer",
        "_ids",
        "_on_chunk",
        "_ours",
        "_prompt_tokens",
        "_rename",
        "_repair",
        "_roles_said",
        "_running_usage",
        "_sends_done",
        "_shape",
        "_template",
        "_text_chars",
        "_theirs",
        "_thinking",
        "_tools",
        "_usage",
        "_usage_per_choice",
        "_wants_usage",
        "error",
        "finished",
        "model",
        "outputs",
        "plain",
        "said",
        "timings",
        "usage",
    )

    def __init__(
        self,
        model: str,
        *,
        wants_usage: bool,
        running_usage: bool = False,
        choices_per_prompt: int = 1,
        usage_per_choice: bool = False,
        sends_done: bool = False,
        prompt_tokens: int = 0,
        repair: ChunkRepair | None = None,
        ids: AnswerIds | None = None,
    ) -> None:
        self.model = model
        self.outputs = 0
        self.usage: Usage | None = None
        self.timings: EngineTimings | None = None
        self.finished = False
        self.error: AdapterError | None = None
        self.said: Said | None = None
        self._wants_usage = wants_usage
        self._running_usage = running_usage
        self._choices_per_prompt = choices_per_prompt
        self._usage_per_choice = usage_per_choice
        self._sends_done = sends_done
        self._prompt_tokens = prompt_tokens
        self._repair = repair
        self._ids = ids
        self._on_chunk: Callable[[Json], None] | None = None
        self._framer = SseFramer()
        self.plain: PlainChunk | None = None
        self._template: PlainChunk | None = None  # the same, as the engine writes it
        self._ours: PlainChunk | None = None  # what the client reads in place of it; None if that is the same
        self._rename: tuple[bytes, bytes] | None = None
        self._finish: dict[int, str | None] = {}
        self._tools: dict[int, ToolCalls] = {}
        self._roles_said: set[int] = set()
        self._thinking: dict[int, ThinkTags] = {}
        self._text_chars: dict[int, int] = {}  # of completions with log-probabilities
        self._usage: Json | None = None
        self._theirs: Any = None  # their name of the model, where ours has been put in its place in _shape
        self._shape: Json = {}  # id, object, created of the last chunk, for a usage chunk of our own
        self._done = False

    def tell(self, on_chunk: Callable[[Json], None]) -> None:
        """Gives every normalised chunk to ``on_chunk``; ``feed`` then returns nothing."""
        self._on_chunk = on_chunk

    def begin_in_answer(self) -> None:
        """The stream begins in the middle of an answer's text: no thinking can begin it."""
        tags = self._thinking[0] = ThinkTags()
        tags.done = True

    def feed(self, data: bytes) -> bytes:
        template = self._template
        if template is None:
            return self._feed_singly(data)
        if not data.startswith(template.prefix):
            return self._feed_frames(data)
        # As many plain chunks as there are, then whatever follows
        texts, rest = _plain_texts(data, template)
        if not texts:
            return self._feed_frames(data)
        self.outputs += len(texts)
        if self.said is not None:
            self.said.quoted += b'"'.join((*texts, b""))
        ours = self._ours
        if ours is not None:
            plain = b"".join((ours.prefix, (ours.suffix + ours.prefix).join(texts), ours.suffix))
        else:
            plain = data[: len(data) - len(rest)] if rest else data
        return plain + self._feed_frames(rest) if rest else plain

    def _feed_singly(self, data: bytes) -> bytes:
        """Event by event, until a plain chunk is known: a fast engine's whole answer may come in one read."""
        out: list[bytes] = []
        at = 0
        while self._template is None:
            end = data.find(b"\n\n", at) + 2
            if end == 1:
                out.append(self._feed_frames(data[at:] if at else data))
                return b"".join(out)
            out.append(self._feed_frames(data[at:end]))
            at = end
        if at < len(data):
            out.append(self.feed(data[at:]))
        return b"".join(out)

    def tokens(self) -> Usage:
        return self.usage or Usage(self._prompt_tokens, self.outputs, estimated=True)

    @property
    def engine_model(self) -> Any:
        """The engine's own name of the model, as it came; None as long as it has named none."""
        return self._shape.get("model") if self._theirs is None else self._theirs

    def facts(self) -> AnswerFacts | None:
        reasons = (self._finish[index] for index in sorted(self._finish))
        return answer_facts(self._shape.get("id"), self.engine_model, reasons)

    def close(self) -> bytes:
        out = b""
        self.said = None  # what comes now goes to the client only if the answer is whole
        if not self._done and self.error is None:
            out = self._last_event()
            if not self._done and self.error is None and not self._sends_done:
                out += self._end()
        if self.error is None and not self.finished and self._framer.stray:
            self._read_stray()
        if self.error is not None:
            raise self.error
        if not self.finished:
            raise TruncatedStream("the engine's stream ended before the answer was finished")
        return out

    def _last_event(self) -> bytes:
        """Reads the event that no blank line ended. If that is because it was cut, the answer is, and not malformed."""
        try:
            last = self._framer.close()
        except MalformedStream as error:
            self.error = error
            return b""
        out = self._read(last)
        if isinstance(self.error, MalformedStream):
            self.error = None
        return out

    # --- frames

    def _feed_frames(self, data: bytes) -> bytes:
        if not data or self.error is not None or self._done:
            return b""
        try:
            frames = self._framer.feed(data)
        except MalformedStream as error:
            self.error = error
            return b""
        out = self._read(frames)
        if self._framer.pending_bytes:
            self._template = self.plain = None  # an event is open: what comes next is its rest
        return out

    def _read(self, frames: list[bytes]) -> bytes:
        out: list[bytes] = []
        for payload in frames:
            try:
                if payload == b"[DONE]" or payload.strip() == b"[DONE]":
                    out.append(self._end())
                else:
                    out.append(self._chunk(payload))
            except AdapterError as error:
                self.error = error
            if self._done or self.error is not None:
                self._template = self.plain = None  # nothing more is wanted, plain or not
                break
        return b"".join(out)

    def _chunk(self, payload: bytes) -> bytes:
        try:
            chunk = read_json(payload)
        except ValueError as error:
            raise MalformedStream("the engine's stream holds an event that is not JSON") from error
        if chunk is None:
            return b""  # llama.cpp begins the stream of a batch of completions with it
        fields = as_object(chunk)
        if fields is None:
            raise MalformedStream("the engine's stream holds an event that is not a JSON object")
        repaired = self._repair is not None and self._repair.repair(fields)
        if "error" in fields or "choices" not in fields or fields.get("object") == "error":
            failed = error_in(fields)
            if failed is not None:
                raise failed
        if not fields.get("id") and self._ids is not None:
            fields["id"], repaired = self._ids.answer, True
        if fields.get("model") is None:
            fields["model"], self._theirs, repaired = self.model, "", True
        if ("timings" in fields or "metrics" in fields) and (timings := timings_in(fields)) is not None:
            self.timings = timings
        changed = self._take_usage(fields) if "usage" in fields else None
        choices = _choices_of(fields)
        if changed == "usage only" or not (choices or fields.keys() - _ENVELOPE):
            return b""  # clients that look at choices[0] fail on an empty list (RW-03)
        if not choices:
            fields["choices"] = []  # clients look into it, and it may be null or left out
            repaired = True
        output = learnable = False
        for choice in choices:
            role = self._take_role(choice)
            repaired |= role == "repeated"
            learnable = role != "first"
            if self._take_choice(choice):
                changed = "rewritten"
            output |= has_output(choice)
        self.outputs += output
        self._shape = fields
        renamed = fields["model"] != self.model
        if self._on_chunk is not None:
            self._on_chunk(fields)
            return b""
        if self.said is not None:
            self.said.take(fields)
        out = None
        if changed is None and not repaired:
            out = self._renamed(payload, fields["model"]) if renamed else payload
        if out is None:
            if renamed:
                self._theirs, fields["model"] = fields["model"], self.model
            out = write_json(fields, payload)
        if (
            changed is None
            and output
            and learnable
            and len(choices) == 1
            and (self._repair is None or self.outputs > 1)
        ):
            self._learn(payload, out, choices[0])
        return b"data: %b\n\n" % (out.replace(b"\n", b" ") if b"\n" in out else out)

    def _learn(self, payload: bytes, out: bytes, choice: Json) -> None:
        """Takes a chunk as the template, if it holds plain text: as it came, and as it goes out."""
        delta: Any = choice.get("delta")
        text: Any = delta.get("content") if delta.__class__ is dict else choice.get("text")
        if choice.get("finish_reason") or not isinstance(text, str) or not text or b"\n" in payload:
            return
        quoted = write_json(text, payload)
        theirs = _around(payload, quoted)
        ours = theirs if out is payload else _around(out, quoted)
        if theirs is None or ours is None:
            return
        self._template = theirs
        self._ours = None if ours is theirs else ours
        self.plain = theirs if ours is theirs else None

    def _renamed(self, payload: bytes, theirs: Any) -> bytes | None:
        """Puts the client's name in place by bytes; None if the engine spells the field in some other way."""
        if self._rename is None:
            theirs_json, ours_json = write_json(theirs, payload), orjson.dumps(self.model)
            for key in (b'"model":', b'"model": '):
                if payload.count(key + theirs_json) == 1:
                    self._rename = (key + theirs_json, key + ours_json)
                    break
            else:
                return None
        return payload.replace(*self._rename) if self._rename[0] in payload else None

    def _take_role(self, choice: Json) -> Literal["first", "repeated"] | None:
        """Takes a role out of a delta that is not the first with one: clients that add strings up would repeat it."""
        delta: Any = choice.get("delta")
        if delta.__class__ is not dict or delta.get("role") is None:
            return None
        index = index_of(choice)
        if index not in self._roles_said:
            self._roles_said.add(index)
            return "first"
        del delta["role"]
        return "repeated"

    def _take_choice(self, choice: Json) -> bool:
        index = index_of(choice)
        changed = False
        delta: Any = choice.get("delta")
        if delta.__class__ is dict:
            tags = self._thinking.get(index)
            if tags is None:
                tags = self._thinking[index] = ThinkTags()
            if not tags.done:
                changed = split_delta(tags, delta, last=bool(choice.get("finish_reason")))
            changed |= both_reasoning_names(delta)
            if "tool_calls" in delta and (calls := objects(delta["tool_calls"])):
                tools = self._tools.get(index)
                if tools is None:
                    tools = self._tools[index] = ToolCalls(self._ids, index)
                changed |= tools.repair(calls)
        elif delta is None and "delta" in choice:
            choice["delta"] = {}  # clients look into it
            changed = True
        elif choice.get("logprobs"):
            text, text_at = choice.get("text"), self._text_chars.get(index, 0)
            changed = as_text_logprobs(choice, text_at)
            self._text_chars[index] = text_at + (len(text) if isinstance(text, str) else 0)
        if choice.get("finish_reason"):
            changed |= finish_reason(choice, saw_tool_calls=bool(self._tools.get(index)))
            self._finish[index] = str(choice["finish_reason"])
        else:
            self._finish.setdefault(index, None)
        return changed

    def _take_usage(self, chunk: Json) -> Literal["usage only", "rewritten"] | None:
        usage = as_object(chunk.get("usage"))
        if usage is None:
            return None
        if self._usage_per_choice:
            self._usage = add_usage(self._usage, usage, choices_per_prompt=self._choices_per_prompt)
        else:
            self._usage = usage
        self.usage = read_usage(self._usage)
        if not chunk.get("choices"):
            self._shape = chunk
            return "usage only"
        if self._running_usage:
            return None
        del chunk["usage"]
        return "rewritten"

    # --- ends

    def _end(self) -> bytes:
        """``[DONE]``, or a clean end of the body. Returns the usage chunk, if there is to be one."""
        self._done = True
        unsaid = self._repair.ending() if self._repair is not None else None
        out = b"" if unsaid is None else self._chunk(write_json(unsaid, b""))
        self.finished = bool(self._finish) and all(self._finish.values())
        if not self.finished or not self._wants_usage:
            return out
        usage = estimated_usage(self._prompt_tokens, self.outputs) if self._usage is None else public_usage(self._usage)
        chunk: Json = {**self._shape, "model": self.model, "choices": [], "usage": usage}
        if self._on_chunk is not None:
            self._on_chunk(chunk)
            return b""
        return b"%bdata: %b\n\n" % (out, write_json(chunk, b""))

    def _read_stray(self) -> None:
        """A bare ``{"error": ...}`` line without ``data:`` (RW-08)."""
        try:
            self.error = error_in(read_json(self._framer.stray.removeprefix(b"error:")))
        except ValueError:
            self.error = None


def _choices_of(chunk: Json) -> list[Json]:
    """Returns the choices of a chunk, [] if it has none.

    Raises:
        MalformedStream: They are no list of objects.
    """
    choices: Any = chunk.get("choices") or []
    if choices.__class__ is list:
        for choice in choices:
            if choice.__class__ is not dict:
                break
        else:
            return choices
    raise MalformedStream("the engine's stream holds a chunk whose choices are no list of objects")


def _plain_texts(data: bytes, template: PlainChunk) -> tuple[list[bytes], bytes]:
    """The texts of the plain chunks that a read begins with, and the rest of it. It begins with the template's prefix.

    A fast engine's read holds many: they are cut in one go, since a text ends at the first quote behind it.
    """
    prefix, text_at, suffix, suffix_bytes = template
    between = suffix + prefix
    texts = data[text_at:].split(between)
    rest = texts.pop()
    if b"" in texts or b'"' in b"".join(texts):
        plain = next(n for n, text in enumerate(texts) if not text or b'"' in text)
        rest = between.join((*texts[plain:], rest))
        del texts[plain:]
    quote = rest.find(b'"')
    if quote <= 0 or not rest.startswith(suffix, quote):
        return texts, prefix + rest
    texts.append(rest[:quote])
    return texts, rest[quote + suffix_bytes :]


def _around(chunk: bytes, quoted: bytes) -> PlainChunk | None:
    """What stands around the text of a plain chunk's event; None unless it is certain where the text is."""
    for key in _TEXT_KEYS:
        if chunk.count(key + quoted) == 1:
            at = chunk.index(key + quoted) + len(key) + 1
            prefix, suffix = b"data: " + chunk[:at], chunk[at + len(quoted) - 2 :] + b"\n\n"
            return PlainChunk(prefix, len(prefix), suffix, len(suffix))
    return None
