"""One shape for what OpenAI-speaking engines answer: choices, tool calls, reasoning, finish reasons, usage.

Every function changes a parsed chunk or answer in place and says whether it did, so that what was right already can
go to the client as the engine's own bytes.
"""

from __future__ import annotations

from typing import Any

from .answer_ids import AnswerIds
from .json_values import Json, as_object, write_json
from .types import EngineFailed, Usage

OUTPUT_KEYS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")
# Other engines' names for OpenAI's reasons. What is in neither list is passed on as it is.
_FINISH = {"eos_token": "stop", "stop_sequence": "stop", "eos": "stop", "repetition": "length", "max_tokens": "length"}
# Not of the engine's own accord: no answer.
BROKEN = frozenset(("abort", "error", "cancelled"))
_COUNTS = range(2**53 + 1)  # counters only grow, and floats end somewhere


def has_output(choice: Json) -> bool:
    """Whether a stream choice carries content, reasoning, a tool call or a refusal; a role is no output."""
    if choice.get("text"):
        return True
    delta: Any = choice.get("delta")
    if delta.__class__ is dict:
        for key, value in delta.items():
            if value and key in OUTPUT_KEYS:
                return True
    return False


def index_of(choice: Json) -> int:
    """Returns which choice it is; the first if it does not say."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def both_reasoning_names(message: Json) -> bool:
    """Gives reasoning text under both names in use: ``reasoning_content`` and vLLM's ``reasoning``."""
    theirs, others = message.get("reasoning"), message.get("reasoning_content")
    if theirs and not others and isinstance(theirs, str):
        message["reasoning_content"] = theirs
        return True
    if others and not theirs and isinstance(others, str):
        message["reasoning"] = others
        return True
    return False


def finish_reason(choice: Json, *, saw_tool_calls: bool) -> bool:
    """Maps an engine's own finish reason to OpenAI's.

    Raises:
        EngineFailed: The reason says that the answer is not whole.
    """
    reason = choice.get("finish_reason")
    if not reason or reason == "length" or not isinstance(reason, str):
        return False
    if reason in BROKEN:
        raise EngineFailed(
            502, f"the engine ended the answer before it was whole (finish reason {reason!r})", code=reason
        )
    mapped = _FINISH.get(reason, reason)
    if mapped == "stop" and saw_tool_calls:
        mapped = "tool_calls"
    choice["finish_reason"] = mapped
    return mapped != reason


def read_usage(value: Any) -> Usage | None:
    """Reads a ``usage`` object; None if it is none."""
    if value.__class__ is not dict:
        return None
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens", 0)
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    if prompt not in _COUNTS or completion not in _COUNTS:
        return None
    of_prompt, of_completion = value.get("prompt_tokens_details"), value.get("completion_tokens_details")
    return Usage(
        prompt,
        completion,
        _count(of_prompt, "cached_tokens") if of_prompt else None,
        _count(of_completion, "reasoning_tokens") if of_completion else None,
    )


def add_usage(total: Json | None, part: Json, *, choices_per_prompt: int) -> Json:
    """Adds up usage that an engine reports for each choice (llama.cpp): the prompt of n choices counts once."""
    if total is None:
        total = {**part, "_parts": 0, "_prompt": 0, "_cached": 0, "completion_tokens": 0}
    parts = total["_parts"] + 1
    prompt = total["_prompt"] + (_count(part, "prompt_tokens") or 0)
    cached = total["_cached"] + (_count(part.get("prompt_tokens_details"), "cached_tokens") or 0)
    completion_tokens = total["completion_tokens"] + (_count(part, "completion_tokens") or 0)
    repeats = min(parts, choices_per_prompt)
    summed = {
        **total,
        "_parts": parts,
        "_prompt": prompt,
        "_cached": cached,
        "prompt_tokens": prompt // repeats,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt // repeats + completion_tokens,
    }
    if isinstance(part.get("prompt_tokens_details"), dict):
        summed["prompt_tokens_details"] = {**part["prompt_tokens_details"], "cached_tokens": cached // repeats}
    return summed


def estimated_usage(prompt_tokens: int, completion_tokens: int) -> Json:
    """Usage for a client whose engine reports none; it says so."""
    total_tokens = prompt_tokens + completion_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": total_tokens,
        "weir_estimated": True,
    }


def public_usage(total: Json) -> Json:
    return {key: value for key, value in total.items() if not key.startswith("_")}


class ToolCalls:
    """Puts the streamed tool calls of one choice right, so that clients that join their pieces get whole calls.

    Some engines give every call index 0 (Ollama, RW-06), so that clients glue two argument strings together; a new id
    at an index in use begins a call of its own, and so does a new name where no ids are given. Others leave the id or
    the type out, give arguments as an object, or repeat id and name in every piece, which clients would add up.

    Args:
        ids: What calls without an id are called by; None leaves them without.
        choice: Index of the choice.
    """

    __slots__ = ("_calls", "_choice", "_ids", "_moved", "_named_by_us")

    def __init__(self, ids: AnswerIds | None = None, choice: int = 0) -> None:
        self._ids = ids
        self._choice = choice
        self._calls: list[tuple[str | None, str | None]] = []  # the engine's id and name, by the index the client sees
        self._moved: dict[int, int] = {}  # the engine's index -> ours
        self._named_by_us: set[int] = set()  # calls, by our index

    def __bool__(self) -> bool:
        return bool(self._calls)

    def repair(self, deltas: list[Json]) -> bool:
        """Puts the pieces right, in place. Returns whether something was wrong."""
        changed = False
        for delta in deltas:
            changed |= self._repair(delta)
        return changed

    def _repair(self, delta: Json) -> bool:
        index = delta.get("index")
        theirs = index if isinstance(index, int) else 0
        function = as_object(delta.get("function")) or {}
        call_id, name = _named(delta.get("id")), _named(function.get("name"))
        ours = self._moved.get(theirs)
        changed = arguments_as_text(function)
        if ours is None or self._is_another(ours, call_id, name):
            ours = self._moved[theirs] = len(self._calls)
            self._calls.append((call_id, name))
            changed |= self._begin(delta, ours)
        else:
            known_id, known_name = self._calls[ours]
            self._calls[ours] = (known_id or call_id, known_name or name)
            if call_id and (call_id == known_id or ours in self._named_by_us):
                del delta["id"]
                changed = True
            if name and name == known_name:
                del function["name"]
                changed = True
        if ours == index:
            return changed
        delta["index"] = ours
        return True

    def _begin(self, delta: Json, ours: int) -> bool:
        changed = False
        if self._ids is not None and not delta.get("id"):
            delta["id"] = self._ids.call(ours, self._choice)
            self._named_by_us.add(ours)
            changed = True
        if not delta.get("type"):
            delta["type"] = "function"
            changed = True
        return changed

    def _is_another(self, ours: int, call_id: str | None, name: str | None) -> bool:
        known_id, known_name = self._calls[ours]
        if call_id and known_id:
            return call_id != known_id
        return name is not None and known_name is not None and name != known_name


def complete_calls(calls: list[Json], ids: AnswerIds | None, choice: int) -> bool:
    """Gives the tool calls of a whole answer what they lack: an id of their own, a type, arguments as text.

    Returns whether one lacked something.
    """
    changed = False
    seen: set[str] = set()
    for index, call in enumerate(calls):
        changed |= arguments_as_text(as_object(call.get("function")) or {})
        call_id = _named(call.get("id"))
        if ids is not None and (call_id is None or call_id in seen):
            call_id = call["id"] = ids.call(index, choice)
            changed = True
        if call_id is not None:
            seen.add(call_id)
        if not call.get("type"):
            call["type"] = "function"
            changed = True
    return changed


def arguments_as_text(function: Json) -> bool:
    """Writes the arguments of a function as JSON if an engine gave them as an object. Returns whether it did.

    Raises:
        MalformedStream: They are nested too deeply.
    """
    arguments = function.get("arguments")
    if not isinstance(arguments, dict):
        return False
    function["arguments"] = write_json(arguments, b"").decode()
    return True


def _named(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(fields: Any, key: str) -> int | None:
    known = as_object(fields)
    value = known.get(key) if known is not None else None
    return value if isinstance(value, int) and value in _COUNTS else None
