"""What LightLLM's answers lack: an id of their own.

Streamed completions and whole chat answers have the server's count of requests for an id, ``"176"``, which begins anew
with every start. Streamed chats have one that is unique.
"""

from __future__ import annotations

from .answer_ids import AnswerIds
from .json_values import Json
from .lightllm_errors import error_in_answer


class LightLlmAnswers:
    """Implements ``openai_stream.ChunkRepair`` for one stream, and ``openai_answer.AnswerRepair``."""

    __slots__ = ("_id",)

    def __init__(self, ids: AnswerIds) -> None:
        self._id = ids.answer

    def repair(self, answer: Json) -> bool:
        if (failed := error_in_answer(answer)) is not None:
            raise failed
        theirs = answer.get("id")
        if isinstance(theirs, str) and theirs and not theirs.isdecimal():
            return False
        answer["id"] = self._id
        return True

    def ending(self) -> Json | None:
        return None
