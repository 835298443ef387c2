"""What LightLLM's answers lack: an id of their own.

Streamed completions and whole chat answers have the server's count of requests for an id, ``"176"``, which begins anew
with every start. Streamed chats have one that is unique.
"""

from __future__ import annotations

import re

import orjson

from .json_values import Json
from .lightllm_errors import error_in_answer, judged
from .openai_answer import WholeAnswer
from .types import BYTES_PER_TOKEN, Answer, EngineFailed, GatewayRequest

# It writes the id first, and so does whoever writes its answer anew.
_COUNTED_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*("[0-9]*"|[0-9]+)(?=\s*[,}])')


def answer_id(request: GatewayRequest) -> str:
    """The id of an answer that has none of its own."""
    return f"{'chatcmpl' if request.operation == 'chat' else 'cmpl'}-{request.request_id}"


class LightLlmChunks:
    """Implements ``openai_stream.ChunkRepair`` for one stream."""

    __slots__ = ("_id",)

    def __init__(self, request: GatewayRequest) -> None:
        self._id = answer_id(request)

    def repair(self, chunk: Json) -> bool:
        if (failed := error_in_answer(chunk)) is not None:
            raise failed
        theirs = chunk.get("id")
        if isinstance(theirs, str) and theirs and not theirs.isdecimal():
            return False
        chunk["id"] = self._id
        return True

    def ending(self) -> Json | None:
        return None


class LightLlmAnswer:
    """A JSON answer of either route; implements ``types.AnswerReader``."""

    outputs = 0

    def __init__(self, request: GatewayRequest) -> None:
        self._id = answer_id(request)
        self._answer = WholeAnswer(request.model, len(request.raw) // BYTES_PER_TOKEN)

    def feed(self, data: bytes) -> None:
        self._answer.feed(data)

    def close(self) -> Answer:
        try:
            answer = self._answer.close()
        except EngineFailed as failed:
            raise judged(failed) from failed
        found = _COUNTED_ID.match(answer.body)
        if found is None:
            return answer
        start, end = found.span(1)
        return answer._replace(body=answer.body[:start] + orjson.dumps(self._id) + answer.body[end:])
