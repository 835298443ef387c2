"""TGI's stream chunks, and how they differ from OpenAI's.

Tool calls are counted from "0" in every conversation, and every piece of one has its id and type. A tool call ends
without a finish reason. Completions say "" where no finish reason is yet, and give the text of the end-of-sequence
token.
"""

from __future__ import annotations

from .answer_ids import AnswerIds
from .framing import MAX_FRAME_BYTES
from .json_values import Json, as_object, objects, read_json
from .tgi_errors import tgi_error_in
from .types import MalformedStream


class TgiChunks:
    """Implements ``openai_stream.ChunkRepair`` for one stream."""

    __slots__ = ("_arguments", "_arguments_chars", "_chat", "_finished", "_ids", "_seen", "_top")

    def __init__(self, ids: AnswerIds, *, chat: bool) -> None:
        self._ids = ids
        self._chat = chat
        self._arguments: dict[int, list[str]] = {}  # of tool calls, by their index
        self._arguments_chars = 0
        self._seen = False  # a choice
        self._finished = False
        self._top: Json = {}  # of the last chunk

    def repair(self, chunk: Json) -> bool:
        if (failed := tgi_error_in(chunk)) is not None:
            raise failed
        changed = False
        for choice in objects(chunk.get("choices")):
            self._seen = True
            changed |= self._repair_choice(choice)
        self._top = chunk
        return changed

    def ending(self) -> Json | None:
        """The finish chunk of a tool call, whose end-of-sequence token TGI swallows.

        A call that the token limit cut before its function was known makes no chunk at all but that of usage.
        """
        if not self._chat or self._finished:
            return None
        if self._arguments and all(map(_is_whole, self._arguments.values())):
            reason = "tool_calls"
        elif not self._seen and self._top.get("usage"):
            reason = "length"
        else:
            return None
        choice: Json = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        return {**self._top, "choices": [choice], "usage": None}

    def _repair_choice(self, choice: Json) -> bool:
        changed = False
        reason = choice.get("finish_reason")
        if reason == "":
            choice["finish_reason"] = None
            changed = True
        elif reason:
            self._finished = True
            if reason == "eos_token" and choice.get("text"):
                choice["text"] = ""  # a whole answer does not have it either
                changed = True
        delta = as_object(choice.get("delta"))
        return changed if delta is None else self._repair_delta(delta) or changed

    def _repair_delta(self, delta: Json) -> bool:
        calls = objects(delta.get("tool_calls"))
        for call in calls:
            self._repair_call(call)
        return bool(calls)

    def _repair_call(self, call: Json) -> None:
        index = call.get("index")
        index = index if isinstance(index, int) else 0
        function = as_object(call.get("function")) or {}
        arguments = self._arguments.get(index)
        if arguments is None:
            arguments = self._arguments[index] = []
            call["id"] = self._ids.call(index)
        else:
            call.pop("id", None)
            call.pop("type", None)
            if function.get("name") is None:
                function.pop("name", None)
        piece = function.get("arguments")
        if isinstance(piece, str):
            arguments.append(piece)
            self._arguments_chars += len(piece)
        if self._arguments_chars > MAX_FRAME_BYTES:
            raise MalformedStream(f"a tool call is longer than {MAX_FRAME_BYTES} characters")


def _is_whole(arguments: list[str]) -> bool:
    try:
        read_json("".join(arguments).encode())
    except ValueError:
        return False
    return True
