"""The lines of an Ollama answer, one JSON object each: what a line adds, and what the last one tells of the whole.

``/api/chat``: ``{"message": {"content", "thinking", "tool_calls"}, "done": false}``; ``/api/generate``:
``{"response", "thinking", "done": false}``. The last line has ``"done": true``, why it ended, token counts and
durations in nanoseconds; what is zero is left out. An answer that is not streamed is its only line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .answer_facts import AnswerFacts, answer_facts
from .answer_ids import AnswerIds
from .json_values import Json, as_list, as_object, objects, read_json, write_json
from .ollama_errors import unwrapped
from .openai_errors import error_in
from .openai_shape import estimated_usage, finish_reason
from .think_tags import ThinkTags
from .types import EngineFailed, EngineTimings, GatewayRequest, MalformedStream, Usage

_NS_PER_S = 1e9
_LARGEST = 2**53
# Reasons to be done with a request that asked for no answer.
_NO_ANSWER = frozenset(("load", "unload"))


class Piece(NamedTuple):
    """What one line adds to the answer.

    Attributes:
        text: Content.
        thinking: Reasoning; comes before the text of the same line.
        calls: Whole tool calls in OpenAI's shape, with index and id.
        logprobs: In OpenAI's shape, one a token; may come without any text.
    """

    text: str
    thinking: str
    calls: list[Json]
    logprobs: list[Json]


class AnswerLines:
    """Reads the lines of one answer, in order.

    Attributes:
        finish: OpenAI's finish reason once the last line has been read.
        prompt_tokens: The engine's count; None until the end, and if it tells none.
        completion_tokens: As above.
        timings: What the last line says; None until then.
        model: The engine's own name of the model, likewise.
    """

    __slots__ = (
        "_call_ids",
        "_generated",
        "_ids",
        "_prompt_estimate",
        "_tags",
        "completion_tokens",
        "finish",
        "model",
        "prompt_tokens",
        "timings",
    )

    def __init__(self, request: GatewayRequest) -> None:
        self.finish: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.timings: EngineTimings | None = None
        self.model: Any = None
        self._ids = AnswerIds(request)
        self._call_ids: set[str] = set()
        self._generated = False
        self._tags = ThinkTags()
        self._tags.done = request.operation != "chat"
        self._prompt_estimate = request.prompt_estimate_tokens

    @property
    def settled(self) -> bool:
        """Whether text goes on as it is: tags that say where thinking ends can come no more."""
        return self._tags.done

    def read(self, line: bytes) -> Piece:
        """Returns what the line adds; sets ``finish`` if it is the last.

        Raises:
            EngineFailed: The line is an error, or says that there is no answer.
            MalformedStream: It is no line of this dialect.
        """
        try:
            value = read_json(line)
        except ValueError as error:
            raise MalformedStream("the engine's answer holds a line that is not JSON") from error
        fields = as_object(value)
        if fields is None:
            raise MalformedStream("the engine's answer holds a line that is not a JSON object")
        if "error" in fields and (failed := error_in(fields)) is not None:
            raise unwrapped(failed)
        logprobs = fields.get("logprobs")
        listed = _logprobs(logprobs) if logprobs else []
        message = as_object(fields.get("message"))
        if message is None:
            piece = Piece(_text(fields.get("response")), _text(fields.get("thinking")), [], listed)
        else:
            calls = message.get("tool_calls")
            called = self._tool_calls(calls) if calls else []
            text, thinking = self._apart(_text(message.get("content")), _text(message.get("thinking")))
            if fields.get("done") is True:
                more = self._tags.rest()
                text, thinking = text + more.answer, thinking + more.reasoning
            piece = Piece(text, thinking, called, listed)
        if piece.text or piece.thinking or piece.calls:
            self._generated = True
        if fields.get("done") is True:
            self._take_end(fields)
        return piece

    def _apart(self, text: str, thinking: str) -> tuple[str, str]:
        """Old templates leave the thinking in the text."""
        tags = self._tags
        if thinking and not tags.done:
            held = tags.rest()
            return held.answer + text, held.reasoning + thinking
        if tags.done or not text:
            return text, thinking
        reasoning, answer = tags.split(text)
        return answer, reasoning

    def tokens(self, completion_estimate: int) -> Usage:
        """Returns the engine's counts; what it does not tell is estimated."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return Usage(
            self._prompt_estimate if prompt is None else prompt,
            completion_estimate if completion is None else completion,
            estimated=prompt is None or completion is None,
        )

    def facts(self) -> AnswerFacts | None:
        """Returns what a trace tells of the answer; None until its end."""
        return None if self.finish is None else answer_facts(self._ids.answer, self.model, (self.finish,))

    def _tool_calls(self, value: Any) -> list[Json]:
        """The engine's index is always 0, and older releases give no id (RW-06)."""
        calls: list[Json] = []
        for call in objects(value):
            function = as_object(call.get("function")) or {}
            index = len(self._call_ids)
            call_id = call.get("id")
            if not isinstance(call_id, str) or not call_id or call_id in self._call_ids:
                call_id = self._ids.call(index)
            self._call_ids.add(call_id)
            named = {"name": _text(function.get("name")), "arguments": _arguments(function.get("arguments"))}
            calls.append({"index": index, "id": call_id, "type": "function", "function": named})
        return calls

    def _take_end(self, fields: Json) -> None:
        reason = _text(fields.get("done_reason")) or "stop"  # older releases give none
        if reason in _NO_ANSWER:
            raise EngineFailed(502, f"the engine answered with {reason!r} and generated nothing", code=reason)
        choice: Json = {"finish_reason": reason}
        finish_reason(choice, saw_tool_calls=bool(self._call_ids))
        self.prompt_tokens = _count(fields, "prompt_eval_count")  # a prompt has tokens: left out is not zero
        self.completion_tokens = _count(fields, "eval_count")
        if self.completion_tokens is None and not self._generated:
            self.completion_tokens = 0
        self.timings = ollama_timings(fields)
        self.model = fields.get("model")
        self.finish = choice["finish_reason"]


def usage_json(usage: Usage) -> Json:
    """Returns the ``usage`` object for a client."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if usage.estimated:
        return estimated_usage(prompt, completion)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    """The arguments as the text of a JSON object, whichever way the engine gives them."""
    if isinstance(value, str):
        return value
    try:
        return write_json({} if value is None else value, b"").decode()
    except MalformedStream as error:
        raise MalformedStream("the engine's tool call is nested too deeply") from error


def _logprobs(value: Any) -> list[Json]:
    """The engine leaves out what is empty; clients look for it."""
    return [
        {**_logprob(item), "top_logprobs": [_logprob(top) for top in objects(item.get("top_logprobs"))]}
        for item in objects(value)
    ]


def _logprob(item: Json) -> Json:
    logprob, spelt = item.get("logprob"), as_list(item.get("bytes"))
    if not isinstance(logprob, (int, float)):
        logprob = None
    if spelt is not None and not all(isinstance(byte, int) for byte in spelt):
        spelt = None
    return {"token": _text(item.get("token")), "logprob": logprob, "bytes": spelt}


def _count(fields: Json, key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and 0 <= value <= _LARGEST else None


def ollama_timings(fields: Json) -> EngineTimings:
    """Returns what the last line of an answer says, or an answer of embeddings."""
    total_s, load_s, prefill_s, decode_s = (
        _seconds(fields, key) for key in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    )
    queue_s = None
    if total_s is not None:
        queue_s = max(0.0, total_s - (load_s or 0.0) - (prefill_s or 0.0) - (decode_s or 0.0))
    return EngineTimings(queue_s, load_s, prefill_s, decode_s)


def _seconds(fields: Json, key: str) -> float | None:
    duration_ns = _count(fields, key)
    return None if duration_ns is None else duration_ns / _NS_PER_S
