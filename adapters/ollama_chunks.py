"""The chunks that clients read in place of an Ollama stream's lines."""

from __future__ import annotations

from .answer_ids import AnswerIds
from .json_values import Json, write_json
from .logprobs import text_logprobs
from .ollama_lines import usage_json
from .types import GatewayRequest, Usage

_END = b"]}\n\n"
# Stands for the text in a chunk that is cut there; nothing else in a choice of ours has it.
_PLACE = "*"


class AnswerChunks:
    """Writes the events of one answer, in order.

    Attributes:
        begun: One was written.
        text_key: Where a chat's delta, or a text's choice, has its text.
    """

    __slots__ = ("_chat", "_head", "_text_chars", "begun", "text_key")

    def __init__(self, request: GatewayRequest) -> None:
        self.begun = False
        self._chat = request.operation == "chat"
        self.text_key = "content" if self._chat else "text"
        self._text_chars = 0
        head: Json = {**envelope(request, chunk=True), "choices": []}
        self._head = b"data: %b" % write_json(head, b"")[:-2]

    def write(self, told: Json, logprobs: list[Json] | None = None, finish: str | None = None) -> bytes:
        """Returns the event for what one line tells.

        Args:
            told: Members of a chat's delta, or of a text's choice.
            logprobs: One a token, as in a chat.
            finish: OpenAI's finish reason.
        """
        if self._chat:
            choice = self._choice(told if self.begun else {"role": "assistant", **told}, finish)
            if logprobs:
                choice["logprobs"] = {"content": logprobs}
        else:
            choice = self._choice(told, finish)
            if logprobs:
                choice["logprobs"] = text_logprobs(logprobs, self._text_chars)
            self._text_chars += len(choice["text"])
        self.begun = True
        return b"%b%b%b" % (self._head, write_json(choice, b""), _END)

    def write_usage(self, usage: Usage) -> bytes:
        """Returns the event that has no choices."""
        return b'%b],"usage":%b}\n\n' % (self._head, write_json(usage_json(usage), b""))

    def around(self, *keys: str) -> tuple[bytes, ...]:
        """Returns an event that is not the first, without the one text that ``keys`` have, cut where it belongs."""
        choice = write_json(self._choice(dict.fromkeys(keys, _PLACE), None), b"").split(_PLACE.encode())
        return (self._head + choice[0], *choice[1:-1], choice[-1] + _END)

    def _choice(self, told: Json, finish: str | None) -> Json:
        if self._chat:
            return {"index": 0, "delta": told, "finish_reason": finish}
        return {"index": 0, "text": "", **told, "logprobs": None, "finish_reason": finish}


def envelope(request: GatewayRequest, *, chunk: bool) -> Json:
    """What stands around the choices: Ollama's own ids are none, or random numbers below 999."""
    kind = "text_completion"
    if request.operation == "chat":
        kind = "chat.completion.chunk" if chunk else "chat.completion"
    return {
        "id": AnswerIds(request).answer,
        "object": kind,
        "created": request.created_unix_s,
        "model": request.model,
    }
