"""TGI's whole answers: OpenAI's, but for an empty id, tool call ids that repeat, and no content beside a call."""

from __future__ import annotations

from .json_values import Json, as_object, objects, read_json, write_json
from .openai_answer import MAX_ANSWER_BYTES, WholeAnswer
from .tgi_chunks import AnswerIds
from .tgi_errors import tgi_error_in
from .types import BYTES_PER_TOKEN, Answer, GatewayRequest, MalformedStream


class TgiAnswer:
    """Implements ``types.AnswerReader``: puts the answer right and leaves the rest to ``WholeAnswer``."""

    outputs = 0

    def __init__(self, request: GatewayRequest) -> None:
        self._ids = AnswerIds(request)
        self._whole = WholeAnswer(request.model, len(request.raw) // BYTES_PER_TOKEN)
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def feed(self, data: bytes) -> None:
        self._size_bytes += len(data)
        if self._size_bytes > MAX_ANSWER_BYTES:
            raise MalformedStream(f"the engine's answer is larger than {MAX_ANSWER_BYTES} bytes")
        self._parts.append(data)

    def close(self) -> Answer:
        self._whole.feed(self._repaired(b"".join(self._parts)))
        return self._whole.close()

    def _repaired(self, body: bytes) -> bytes:
        try:
            answer = as_object(read_json(body))
        except ValueError:
            answer = None
        if answer is None:
            return body  # WholeAnswer says what is wrong with it
        if "choices" not in answer and (failed := tgi_error_in(answer)) is not None:
            raise failed
        changed = False
        if not answer.get("id"):
            answer["id"] = self._ids.answer
            changed = True
        for choice in objects(answer.get("choices")):
            changed |= self._repair_message(as_object(choice.get("message")) or {})
        return write_json(answer, body) if changed else body

    def _repair_message(self, message: Json) -> bool:
        calls = objects(message.get("tool_calls"))
        for index, call in enumerate(calls):
            call["id"] = self._ids.call(index)
            function = as_object(call.get("function")) or {}
            if isinstance(arguments := function.get("arguments"), dict):  # before 3.2
                function["arguments"] = write_json(arguments, b"").decode()
        if calls:
            message.setdefault("content", None)
        return bool(calls)
