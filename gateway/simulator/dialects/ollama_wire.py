"""Ollama 0.33, the answers: NDJSON with durations in nanoseconds, and OpenAI's shape as its converter writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import orjson

from gateway.simulator.calls import Generation
from gateway.simulator.dialects.openai_wire import OpenAiWire
from gateway.simulator.dialects.protocol import Reply
from gateway.simulator.dialects.sse import frame
from gateway.simulator.output import Output
from gateway.simulator.text import FinishReason, Piece
from gateway.simulator.transcript import Fields, Transcript

_FINGERPRINT = "fp_ollama"
_STOPPED = "an error was encountered while running the model: the server is stopping"


def timestamp(unix_s: int, after_s: float) -> str:
    """Returns a time as Ollama writes it, ``after_s`` seconds after a whole one."""
    at = datetime.fromtimestamp(unix_s, UTC) + timedelta(seconds=after_s)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


class OllamaNativeWire:
    """An answer of /api/chat or /api/generate: one line for each token, and a last one with the counts."""

    media_type: ClassVar[str] = "application/x-ndjson"

    def __init__(self, call: Generation, model: str, created_unix_s: int) -> None:
        self.said = Transcript(call)
        self._call = call
        self._model = model
        self._created_unix_s = created_unix_s

    def add(self, output: Output) -> None:
        """Keeps one output."""
        self.said.add(output)

    def frames(self, output: Output) -> list[bytes]:
        """Returns the line of one token: none for a tool call, which is written whole."""
        self.said.add(output)
        piece, finish = output.piece, output.finish_reason
        if finish == "abort":
            return [_line({"error": _STOPPED})]
        lines: list[bytes] = []
        if piece is not None and piece.text and piece.channel in ("content", "reasoning"):
            thoughts = piece.channel == "reasoning"
            said = self.said_fields("" if thoughts else piece.text, piece.text if thoughts else "", [])
            lines.append(self._body(said, done=False))
        if finish is not None:
            if self.said.called(0):
                lines.append(self._body(self.said_fields("", "", [_called(self.said)]), done=False))
            lines.append(self._body(self.said_fields("", "", []), done=True))
        return lines

    def end(self) -> list[bytes]:
        """Returns nothing: ``done`` is the end."""
        return []

    def reply(self) -> Reply:
        """Returns the whole answer."""
        if self.said.aborted:
            return Reply(500, {"error": _STOPPED}, "application/json; charset=utf-8")
        calls = [_called(self.said)] if self.said.called(0) else []
        said = self.said_fields(self.said.text(0, "content"), self.said.text(0, "reasoning"), calls)
        line = self._body(said, done=True)
        return Reply(200, line.rstrip(b"\n"), "application/json; charset=utf-8")

    def said_fields(self, content: str, thinking: str, calls: list[Fields]) -> Fields:
        """Returns what was said, in the shape of this call."""
        raise NotImplementedError

    def last_fields(self) -> Fields:
        """Returns what only the last line of this call has."""
        return {}

    def _body(self, said: Fields, *, done: bool) -> bytes:
        at_s = self.said.last_s
        line: Fields = {"model": self._model, "created_at": timestamp(self._created_unix_s, at_s)} | said
        if not done:
            return _line(line | {"done": False})
        reason = "length" if self.said.finish[0] == "length" else "stop"
        counts: Fields = {
            "total_duration": _nanoseconds(at_s),
            "prompt_eval_count": self._call.prompt_tokens,
            "prompt_eval_duration": _nanoseconds(self.said.prefill_s),
            "eval_count": self.said.completion_tokens,
            "eval_duration": _nanoseconds(self.said.decode_s),
        }
        shown = {name: value for name, value in counts.items() if value}
        return _line(line | {"done": True, "done_reason": reason} | self.last_fields() | shown)


class OllamaChatWire(OllamaNativeWire):
    """An answer of /api/chat."""

    def said_fields(self, content: str, thinking: str, calls: list[Fields]) -> Fields:
        message: Fields = {"role": "assistant", "content": content}
        if thinking:
            message["thinking"] = thinking
        return {"message": message | ({"tool_calls": calls} if calls else {})}


class OllamaGenerateWire(OllamaNativeWire):
    """An answer of /api/generate."""

    def said_fields(self, content: str, thinking: str, calls: list[Fields]) -> Fields:
        said: Fields = {"response": content}
        if thinking:
            said["thinking"] = thinking
        return said

    def last_fields(self) -> Fields:
        return {"context": [1, 2, 3]}


class OllamaOpenAiWire(OpenAiWire):
    """A chat or completion answer under /v1.

    Attributes:
        model: The name the client used.
    """

    media_type: ClassVar[str] = "text/event-stream"
    model = ""

    def opening(self) -> Fields | None:
        return None

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        role: Fields = {"role": "assistant"} if first else {}
        match piece.channel:
            case "content":
                return role | {"content": piece.text}
            case "reasoning":
                return role | {"content": "", "reasoning": piece.text}
            case "tool_name" | "tool_arguments":
                return None

    def before_end(self, index: int) -> list[Fields]:
        calls = self.calls(index, self._tool_call_id)
        if not calls:
            return []
        role: Fields = {} if self.said.text(index, "reasoning") else {"role": "assistant"}
        function = calls[0]["function"]
        call: Fields = {"id": self._tool_call_id, "index": 0, "type": "function", "function": function}
        return [role | {"content": "", "tool_calls": [call]}]

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        logprobs = self.logprobs(index, pieces) if pieces else None
        asked = {"logprobs": logprobs} if logprobs is not None else {}
        if self.kind == "completion":
            return payload | {"index": index, "finish_reason": finish} | asked
        return {"index": index} | payload | {"finish_reason": finish} | asked

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        head = self.head(".chunk" if self.kind == "chat" else "") | {"model": self.model}
        if self.kind == "chat":
            return head | {"system_fingerprint": _FINGERPRINT, "choices": choices}
        chunk: Fields = {"id": head["id"], "object": head["object"], "created": head["created"], "choices": choices}
        chunk |= {"model": self.model, "system_fingerprint": _FINGERPRINT}
        nothing: Fields = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return chunk | ({"usage": nothing} if self.call.include_usage else {})

    def broken(self) -> bytes:
        self.model = ""  # all that is left of the error
        choice: Fields = {"index": 0, "delta": {"content": ""}, "finish_reason": None}
        return frame(self.chunk([choice], 0, None))

    def broken_reply(self) -> Reply:
        error: Fields = {"message": _STOPPED, "type": "api_error", "param": None, "code": None}
        return Reply(500, {"error": error}, "application/json; charset=utf-8")

    def reply(self) -> Reply:
        return super().reply()._replace(content_type="application/json; charset=utf-8")

    def body(self) -> Fields:
        finish = self.said.finish[0]
        if self.kind == "completion":
            choice: Fields = {"text": self.said.text(0, "content"), "index": 0, "finish_reason": finish}
        else:
            message: Fields = {"role": "assistant", "content": self.content(0) or ""}
            if thoughts := self.said.text(0, "reasoning"):
                message["reasoning"] = thoughts
            if calls := self.calls(0, self._tool_call_id):
                message["tool_calls"] = [{"id": call["id"], "index": 0} | call for call in calls]
            choice = {"index": 0, "message": message, "finish_reason": finish}
        head = self.head() | {"model": self.model, "system_fingerprint": _FINGERPRINT}
        return head | {"choices": [choice], "usage": self.usage()}

    @property
    def _tool_call_id(self) -> str:
        return f"call_{self.hashed(8)}"


def _line(fields: Fields) -> bytes:
    return orjson.dumps(fields) + b"\n"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _called(said: Transcript) -> Fields:
    arguments: object = json.loads(said.text(0, "tool_arguments"))
    function: Fields = {"index": 0, "name": said.text(0, "tool_name"), "arguments": arguments}
    return {"id": f"call_{said.call.prompt_tokens:08x}", "function": function}
