"""One shape for what OpenAI-speaking engines answer: choices, tool calls, reasoning, finish reasons, usage.

Every function changes a parsed chunk or answer in place and says whether it did, so that what was right already can
go to the client as the engine's own bytes.
"""

from __future__ import annotations

from typing import Any

from .json_values import Json, as_object
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
    """Repairs the indexes of streamed tool calls of one choice.

    Some engines give every call index 0 (Ollama, RW-06), so that clients glue two argument strings together; a new id
    at an index in use begins a call of its own, and so does a new name where no ids are given.
    """

    __slots__ = ("_calls", "_moved")

    def __init__(self) -> None:
        self._calls: list[tuple[str | None, str | None]] = []  # id and name, by the index the client sees
        self._moved: dict[int, int] = {}  # the engine's index -> ours

    def __bool__(self) -> bool:
        return bool(self._calls)

    def repair(self, deltas: list[Json]) -> bool:
        """Puts the indexes right. Returns whether one was wrong."""
        changed = False
        for delta in deltas:
            changed |= self._repair(delta)
        return changed

    def _repair(self, delta: Json) -> bool:
        index = delta.get("index")
        theirs = index if isinstance(index, int) else 0
        call_id, name = _named(delta.get("id")), _named((as_object(delta.get("function")) or {}).get("name"))
        ours = self._moved.get(theirs)
        if ours is None or self._is_another(ours, call_id, name):
            ours = self._moved[theirs] = len(self._calls)
            self._calls.append((call_id, name))
        else:
            known_id, known_name = self._calls[ours]
            self._calls[ours] = (known_id or call_id, known_name or name)
        if ours == index:
            return False
        delta["index"] = ours
        return True

    def _is_another(self, ours: int, call_id: str | None, name: str | None) -> bool:
        known_id, known_name = self._calls[ours]
        if call_id and known_id:
            return call_id != known_id
        return name is not None and known_name is not None and name != known_name


def _named(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(fields: Any, key: str) -> int | None:
    known = as_object(fields)
    value = known.get(key) if known is not None else None
    return value if isinstance(value, int) and value in _COUNTS else None
