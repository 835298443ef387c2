"""TGI's whole answers: OpenAI's, but for tool call ids that repeat, and no content beside a call."""

from __future__ import annotations

from .answer_ids import AnswerIds
from .json_values import Json, as_object, objects
from .tgi_errors import tgi_error_in


class TgiAnswers:
    """Implements ``openai_answer.AnswerRepair`` for one answer."""

    def __init__(self, ids: AnswerIds) -> None:
        self._ids = ids

    def repair(self, answer: Json) -> bool:
        if "choices" not in answer and (failed := tgi_error_in(answer)) is not None:
            raise failed
        changed = False
        for choice in objects(answer.get("choices")):
            changed |= self._repair_message(as_object(choice.get("message")) or {})
        return changed

    def _repair_message(self, message: Json) -> bool:
        calls = objects(message.get("tool_calls"))
        for index, call in enumerate(calls):
            call["id"] = self._ids.call(index)
        if calls:
            message.setdefault("content", None)
        return bool(calls)
