"""Whole answers of OpenAI-speaking engines: checked, brought into one shape, or put together from a stream."""

from __future__ import annotations

import re
from typing import Any, Protocol

import orjson

from .answer_ids import AnswerIds
from .engine_timings import timings_in
from .json_values import Json, as_list, as_object, objects, read_json, read_json_object, write_json
from .logprobs import as_text_logprobs
from .openai_errors import error_in
from .openai_shape import (
    both_reasoning_names,
    complete_calls,
    estimated_usage,
    finish_reason,
    index_of,
    read_usage,
)
from .openai_stream import OpenAiStream
from .think_tags import begins_with_thinking, split_message
from .types import BYTES_PER_TOKEN, Answer, EngineTimings, MalformedStream, Usage

MAX_ANSWER_BYTES = 256 * 1024 * 1024
# An embeddings answer above this is not parsed: only its ends are looked at.
_PARSED_BYTES = 262_144
_ENDS_BYTES = 4096
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')


_PLAIN_FINISH = ("stop", "length")
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")


class AnswerRepair(Protocol):
    """Brings the whole answer of an engine that strays from OpenAI's dialect back to it."""

    def repair(self, answer: Json, /) -> bool:
        """Changes it in place before anything else is read of it. Returns whether it did.

        Raises:
            AdapterError: It says that it failed.
        """
        ...


class AnswerBody:
    """The parts of one body, bounded; what readers of an answer that is no stream begin with."""

    outputs = 0
    _size_bytes = 0

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Takes one read.

        Raises:
            MalformedStream: The body is too large.
        """
        self._size_bytes = size_bytes = self._size_bytes + len(data)
        if size_bytes > MAX_ANSWER_BYTES:
            raise _too_large()
        self._parts.append(data)

    def body(self) -> bytes:
        return b"".join(self._parts)  # a single part as it is


class WholeAnswer(AnswerBody):
    """A JSON answer of ``/v1/chat/completions`` or ``/v1/completions``; implements ``types.AnswerReader``."""

    def __init__(
        self,
        model: str,
        prompt_tokens: int,
        ids: AnswerIds,
        *,
        repair: AnswerRepair | None = None,
        timings: EngineTimings | None = None,
    ) -> None:
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._ids = ids
        self._repair = repair
        self._timings = timings
        self._parts = []

    def close(self) -> Answer:
        body = b"".join(self._parts)
        answer = answer_object(body)
        changed = self._repair is not None and self._repair.repair(answer)
        if "choices" not in answer or "error" in answer:
            _raise_error(answer)
        timings = self._timings
        if "timings" in answer or "metrics" in answer:
            timings = timings_in(answer) or timings
        choices: Any = answer.get("choices")
        if choices.__class__ is not list or len(choices) != 1 or not _is_plain(choices[0]):
            changed |= _normalise_all(choices, self._ids)
        if not answer.get("id"):
            answer["id"] = self._ids.answer
            changed = True
        usage = read_usage(answer.get("usage"))
        if usage is None:
            completion_tokens = (
                sum(len(_text_of(choice).encode("utf-8", "surrogatepass")) for choice in choices) // BYTES_PER_TOKEN
            )
            usage = Usage(self._prompt_tokens, completion_tokens, estimated=True)
            answer["usage"] = estimated_usage(self._prompt_tokens, completion_tokens)
            changed = True
        model = answer.get("model")
        if model != self._model:
            if not changed and isinstance(model, str) and len(named := list(_MODEL.finditer(body))) == 1:
                return Answer(_spliced(body, named[0], self._model), usage, 1, timings, answer, model)
            answer["model"] = self._model
            changed = True
        return Answer(write_json(answer, body) if changed else body, usage, 1, timings, answer, model)


class EmbeddingsAnswer(AnswerBody):
    """An answer of ``/v1/embeddings``: megabytes of numbers, of which only the ends are read."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model

    def close(self) -> Answer:
        body = self.body()
        if len(body) > _PARSED_BYTES:
            return self._by_ends(body)
        answer = answer_object(body)
        _raise_error(answer)
        if not isinstance(answer.get("data"), list):
            raise MalformedStream("the engine's answer has no data")
        usage = read_usage(answer.get("usage"))
        model = answer.get("model")
        if model in (None, self._model):
            return Answer(body, usage, 1, None, answer, model)
        if len(named := list(_MODEL.finditer(body))) == 1:
            return Answer(_spliced(body, named[0], self._model), usage, 1, None, answer, model)
        answer["model"] = self._model
        return Answer(write_json(answer, body), usage, 1, None, answer, model)

    def _by_ends(self, body: bytes) -> Answer:
        head, middle, tail = body[:_ENDS_BYTES], body[_ENDS_BYTES:-_ENDS_BYTES], body[-_ENDS_BYTES:]
        if not head.lstrip().startswith(b"{") or not tail.rstrip().endswith(b"}"):
            raise MalformedStream("the engine's answer is not a JSON object")
        if b'"data"' not in head:
            raise MalformedStream("the engine's answer has no data")
        usage = _USAGE.search(tail) or _USAGE.search(head)
        if (named := _MODEL.search(head)) is not None:
            head = _spliced(head, named, self._model)
        elif (named := _MODEL.search(tail)) is not None:
            tail = _spliced(tail, named, self._model)
        return Answer(b"".join((head, middle, tail)), read_usage(read_json_object(usage[1])) if usage else None, 1)


class StreamedAnswer:
    """A whole answer for the client from a stream of the engine's.

    For engines that do not notice a leaving client unless they stream (llama.cpp); it also times the first token.
    """

    def __init__(self, stream: OpenAiStream, *, chat: bool) -> None:
        self._stream = stream
        stream.tell(self._take)
        self._chat = chat
        self._size_bytes = 0
        self._top: Json = {}
        self._choices: dict[int, Json] = {}
        self._calls: dict[int, list[Json]] = {}  # tool calls, by choice

    @property
    def outputs(self) -> int:
        return self._stream.outputs

    def feed(self, data: bytes) -> None:
        self._size_bytes = bounded(self._size_bytes + len(data))
        self._stream.feed(data)
        if self._stream.error is not None:
            raise self._stream.error

    def _take(self, chunk: Json) -> None:
        """Adds one normalised chunk."""
        for key, value in chunk.items():
            if key != "choices" and not (value is None and key in self._top):
                self._top[key] = value
        for choice in objects(chunk.get("choices")):
            self._take_choice(choice)

    def close(self) -> Answer:
        self._stream.close()
        for index, calls in self._calls.items():
            self._choices[index]["message"]["tool_calls"] = calls
        for choice in self._choices.values() if self._chat else ():
            message = choice["message"]
            if message["content"] is None and not any(message.get(key) for key in _INSTEAD_OF_CONTENT):
                message["content"] = ""  # an answer of no tokens, as engines give it whole
        choices = [self._choices[index] for index in sorted(self._choices)]
        kind = "chat.completion" if self._chat else "text_completion"
        answer = {**self._top, "object": kind, "model": self._stream.model, "choices": choices}
        stream = self._stream
        return Answer(write_json(answer, b""), stream.tokens(), 1, stream.timings, answer, stream.engine_model)

    def _take_choice(self, choice: Json) -> None:
        index = index_of(choice)
        whole = self._choices.get(index)
        if whole is None:
            empty: Json = {"message": {"role": "assistant", "content": None}} if self._chat else {"text": ""}
            whole = self._choices[index] = {"index": index, **empty, "logprobs": None, "finish_reason": None}
        for key, value in choice.items():
            if key == "delta" and self._chat:
                self._take_delta(index, whole["message"], as_object(value) or {})
            elif key == "text" and not self._chat:
                whole["text"] += value if isinstance(value, str) else ""
            elif key == "logprobs":
                whole["logprobs"] = _joined(whole["logprobs"], value)
            elif value is not None and key not in ("index", "message"):
                whole[key] = value

    def _take_delta(self, index: int, message: Json, delta: Json) -> None:
        for key, value in delta.items():
            if value is None or key == "role":
                continue
            if key == "tool_calls":
                if deltas := objects(value):
                    _merge_calls(self._calls.setdefault(index, []), deltas)
            elif isinstance(value, str):
                text = message.get(key)
                message[key] = text + value if isinstance(text, str) else value
            else:
                message[key] = _joined(message.get(key), value)


def bounded(size_bytes: int) -> int:
    """Returns the size of an answer so far.

    Raises:
        MalformedStream: It is larger than any answer may be.
    """
    if size_bytes > MAX_ANSWER_BYTES:
        raise _too_large()
    return size_bytes


def _too_large() -> MalformedStream:
    return MalformedStream(f"the engine's answer is larger than {MAX_ANSWER_BYTES} bytes")


def answer_object(body: bytes) -> Json:
    """Parses a whole answer.

    Raises:
        MalformedStream: It is no JSON object.
    """
    try:
        answer = read_json(body)
    except ValueError as error:
        raise MalformedStream("the engine's answer is not JSON") from error
    if answer.__class__ is not dict:
        raise MalformedStream("the engine's answer is not a JSON object")
    return answer


def _raise_error(answer: Json) -> None:
    if (failed := error_in(answer)) is not None:
        raise failed


def _normalise_all(choices: Any, ids: AnswerIds) -> bool:
    """Brings all choices into shape. Returns whether one changed.

    Raises:
        MalformedStream: There is none, or one that holds no answer.
    """
    listed = as_list(choices)
    if not listed:
        raise MalformedStream("the engine's answer has no choices")
    known = objects(listed)
    if len(known) != len(listed) or not all("message" in choice or "text" in choice for choice in known):
        raise MalformedStream("a choice of the engine's answer holds no answer")
    changed = False
    for choice in known:
        if not _is_plain(choice):
            changed |= _normalise(choice, ids)
    return changed


def _spliced(body: bytes, named: re.Match[bytes], model: str) -> bytes:
    at, end = named.span(1)
    return body[:at] + orjson.dumps(model) + body[end:]


def _text_of(choice: Json) -> str:
    message = as_object(choice.get("message")) or choice
    text = message.get("content") or message.get("text")
    return text if isinstance(text, str) else ""


def _is_plain(choice: Any) -> bool:
    """Whether a choice holds text only and ended in the usual way, so that it is in shape already."""
    if choice.__class__ is not dict or choice.get("finish_reason") not in _PLAIN_FINISH:
        return False
    message: Any = choice.get("message")
    if message.__class__ is not dict:
        return "text" in choice and not choice.get("logprobs")
    return not (
        message.get("tool_calls")
        or message.get("reasoning")
        or message.get("reasoning_content")
        or begins_with_thinking(message.get("content"))
    )


def _normalise(choice: Json, ids: AnswerIds) -> bool:
    message = as_object(choice.get("message"))
    if message is None:
        changed = as_text_logprobs(choice, 0)
        return finish_reason(choice, saw_tool_calls=False) or changed
    changed = split_message(message)
    changed |= both_reasoning_names(message)
    if calls := objects(message.get("tool_calls")):
        changed |= complete_calls(calls, ids, index_of(choice))
    return finish_reason(choice, saw_tool_calls=bool(calls)) or changed


def _merge_calls(calls: list[Json], deltas: list[Json]) -> None:
    for delta in deltas:
        index: int = delta["index"]  # ToolCalls has put it right
        while len(calls) <= index:
            calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        call = calls[index]
        for key, value in delta.items():
            if value is not None and key not in ("index", "function"):
                call[key] = value
        for key, value in (as_object(delta.get("function")) or {}).items():
            if isinstance(value, str):
                call["function"][key] = call["function"].get(key, "") + value


def _joined(old: Any, new: Any) -> Any:
    """Lists grow, dicts of lists grow by key, all else is replaced; None adds nothing."""
    if new is None:
        return old
    if (items := as_list(old)) is not None and (more := as_list(new)) is not None:
        return [*items, *more]
    if (fields := as_object(old)) is not None and (others := as_object(new)) is not None:
        return {**fields, **{key: _joined(fields.get(key), value) for key, value in others.items()}}
    return new
