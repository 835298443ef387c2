"""Ids for answers of engines that give none, or the same again and again."""

from __future__ import annotations

from .types import GatewayRequest


class AnswerIds:
    """The ids of one answer, made of the request's; keeps nothing else of the request.

    Attributes:
        answer: The answer's own, with the prefix that OpenAI gives to answers of the operation.
    """

    __slots__ = ("_request_id", "answer")

    def __init__(self, request: GatewayRequest) -> None:
        self.answer = f"{'chatcmpl' if request.operation == 'chat' else 'cmpl'}-{request.request_id}"
        self._request_id = request.request_id

    def call(self, index: int, choice: int = 0) -> str:
        """Returns the id of a tool call of one of several choices."""
        return f"call_{self._request_id}_{choice}_{index}" if choice else f"call_{self._request_id}_{index}"
