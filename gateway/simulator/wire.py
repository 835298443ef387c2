"""The bytes of vLLM's dialect (release 0.33): bodies, stream frames, errors."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

import orjson

from gateway.simulator.bodies import CallRejected
from gateway.simulator.calls import Embedding, Generation
from gateway.simulator.embedding import embed
from gateway.simulator.text import Answer, FinishReason, Piece, pieces_of

VERSION = "0.33.0+simulated"
DONE = b"data: [DONE]\n\n"

Fields = dict[str, object]

_ALTERNATIVES = pieces_of(" the a of and to in is it that for on with as by at one two be or not so but")


@dataclass(frozen=True, slots=True)
class Output:
    """One token of one choice, or (``piece`` None) the end of a choice that was aborted."""

    choice: int
    piece: Piece | None
    finish_reason: FinishReason | None = None


def frame(payload: Fields) -> bytes:
    """Returns one SSE event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def error_body(error: CallRejected) -> Fields:
    """Returns the body of a refusal."""
    return {"error": {"message": str(error), "type": error.type, "param": error.param, "code": error.status}}


@dataclass(slots=True)
class GenerationWire:
    """Writes the answer to one call, as a stream or as one body.

    Attributes:
        kind: Which of the two dialects.
        id: The id of the answer with its prefix.
        created_unix_s: Whole seconds.
    """

    kind: Literal["chat", "completion"]
    id: str
    created_unix_s: int
    call: Generation
    _pieces: list[list[Piece]] = field(init=False)  # what was written so far, by choice
    _finish: list[FinishReason | None] = field(init=False)

    def __post_init__(self) -> None:
        self._pieces = [[] for _ in self.call.answers]
        self._finish = [None for _ in self.call.answers]

    def frames(self, output: Output) -> list[bytes]:
        """Returns the stream's frames for one token: none where a stop string hides it."""
        first = not self._pieces[output.choice]
        self.add(output)
        frames: list[bytes] = []
        if first and self.kind == "chat":
            delta: Fields = {"role": "assistant", "content": ""}
            choice: Fields = {"index": output.choice, "delta": delta, "logprobs": None, "finish_reason": None}
            frames.append(frame(self._chunk(choice, 0) | {"prompt_token_ids": None, "prompt_text": None}))
        piece, finish = output.piece, output.finish_reason
        if finish is None and piece is not None and not piece.text:
            return frames
        logprobs = self._logprobs(output.choice, [piece] if piece is not None and piece.text else [])
        stop_reason = self.call.answers[output.choice].stop_reason
        if self.kind == "chat":
            choice = {"index": output.choice, "delta": self._delta(piece), "logprobs": logprobs}
            choice |= {"finish_reason": finish} | ({"stop_reason": stop_reason} if finish else {}) | {"token_ids": None}
        else:
            choice = {"index": output.choice, "text": piece.text if piece is not None else "", "logprobs": logprobs}
            choice |= {"finish_reason": finish, "stop_reason": stop_reason if finish else None}
            choice |= {"prompt_token_ids": None, "token_ids": None}
        chunk = self._chunk(choice, len(self._pieces[output.choice]))
        if finish and not self.call.include_usage:
            chunk["system_fingerprint"] = self._fingerprint
        frames.append(frame(chunk))
        return frames

    def usage_frame(self) -> bytes:
        """Returns the frame after the last choice's end, for those who asked for usage."""
        head = self._head(".chunk" if self.kind == "chat" else "")
        end: Fields = {"choices": [], "usage": self._usage(), "system_fingerprint": self._fingerprint}
        return frame(head | end)

    def add(self, output: Output) -> None:
        """Keeps one token for ``body``."""
        if output.piece is not None:
            self._pieces[output.choice].append(output.piece)
        self._finish[output.choice] = output.finish_reason

    def body(self) -> Fields:
        """Returns the answer to a call without ``stream``."""
        choices = [self._whole(choice, answer) for choice, answer in enumerate(self.call.answers)]
        end: Fields = {"service_tier": None, "system_fingerprint": self._fingerprint, "usage": self._usage()}
        return self._head("") | {"choices": choices} | end | {"kv_transfer_params": None, "metrics": None}

    @property
    def _fingerprint(self) -> str:
        return f"vllm-{VERSION}-{crc32(self.call.model.encode()):08x}"

    def _head(self, suffix: str) -> Fields:
        name = ("chat.completion" if self.kind == "chat" else "text_completion") + suffix
        return {"id": self.id, "object": name, "created": self.created_unix_s, "model": self.call.model}

    def _chunk(self, choice: Fields, completion_tokens: int) -> Fields:
        chunk = self._head(".chunk" if self.kind == "chat" else "") | {"choices": [choice]}
        if self.call.include_usage and self.call.continuous_usage:
            chunk["usage"] = _usage(self.call.prompt_tokens, completion_tokens)
        return chunk

    def _usage(self) -> Fields:
        pieces = [piece for choice in self._pieces for piece in choice]
        usage = _usage(self.call.prompt_tokens, len(pieces))
        if thoughts := sum(piece.channel == "reasoning" for piece in pieces):
            usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return usage

    def _delta(self, piece: Piece | None) -> Fields:
        if piece is None or not piece.text:
            return {}
        match piece.channel:
            case "content":
                return {"content": piece.text}
            case "reasoning":
                return {"reasoning": piece.text}
            case "tool_name":
                head: Fields = {"id": self._tool_call_id, "type": "function", "index": 0}
                return {"content": None, "tool_calls": [head | {"function": {"name": piece.text}}]}
            case "tool_arguments":
                arguments: Fields = {"arguments": piece.text}
                return {"content": None, "tool_calls": [{"index": 0, "function": arguments}]}

    @property
    def _tool_call_id(self) -> str:
        return f"chatcmpl-tool-{crc32(self.id.encode()):08x}{self.created_unix_s & 0xFFFFFFFF:08x}"

    def _whole(self, choice: int, answer: Answer) -> Fields:
        pieces, finish = self._pieces[choice], self._finish[choice]
        logprobs = self._logprobs(choice, pieces)
        end: Fields = {"logprobs": logprobs, "finish_reason": finish}
        end |= {"stop_reason": answer.stop_reason if finish == "stop" else None, "token_ids": None}
        text: dict[str, str] = {}
        for piece in pieces:
            text[piece.channel] = text.get(piece.channel, "") + piece.text
        if self.kind == "completion":
            return {"index": choice, "text": text.get("content", "")} | end
        content: str | None = text.get("content")
        calls: list[Fields] = []
        if "tool_name" in text:
            arguments = text.get("tool_arguments", "")
            if finish in ("stop", "tool_calls"):
                content = ""
                function = {"name": text["tool_name"], "arguments": arguments}
                calls.append({"id": self._tool_call_id, "type": "function", "function": function})
            else:  # cut off in the middle of a call: vLLM hands the unparsable rest out as content
                content = text["tool_name"] + arguments
        message: Fields = {"role": "assistant", "content": content, "refusal": None, "annotations": None, "audio": None}
        message |= {"function_call": None} | ({"tool_calls": calls} if calls else {})
        return {"index": choice, "message": message | {"reasoning": text.get("reasoning")}} | end

    def _logprobs(self, choice: int, pieces: Sequence[Piece]) -> Fields | None:
        wanted = self.call.logprobs
        if wanted is None:
            return None
        if self.kind == "chat":
            entries = [_entry(piece.text) | {"top_logprobs": _top(piece.text, wanted)} for piece in pieces]
            return {"content": entries}
        shown = self._pieces[choice]
        at = sum(len(piece.text) for piece in shown) - sum(len(piece.text) for piece in pieces)
        offsets: list[int] = []
        for piece in pieces:
            offsets.append(at)
            at += len(piece.text)
        return {
            "text_offset": offsets,
            "token_logprobs": [_logprob(piece.text) for piece in pieces],
            "tokens": [piece.text for piece in pieces],
            "top_logprobs": [{entry["token"]: entry["logprob"] for entry in _top(p.text, wanted or 1)} for p in pieces],
        }


def embedding_body(call: Embedding, id: str, created_unix_s: int) -> Fields:
    """Returns the answer to an embeddings call."""
    data: list[Fields] = []
    for index, item in enumerate(call.inputs):
        vector = embed(item.text, call.dimensions)
        packed = b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if call.base64 else vector
        data.append({"index": index, "object": "embedding", "embedding": packed})
    head: Fields = {"id": id, "object": "list", "created": created_unix_s, "model": call.model}
    return head | {"data": data, "usage": _usage(sum(item.tokens for item in call.inputs), 0)}


def _usage(prompt_tokens: int, completion_tokens: int) -> Fields:
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "total_tokens": total, "completion_tokens": completion_tokens}


def _logprob(token: str) -> float:
    return -(crc32(token.encode()) % 900 + 1) / 1000


def _entry(token: str, below: float = 0.0) -> Fields:
    return {"token": token, "logprob": _logprob(token) - below, "bytes": list(token.encode())}


def _top(token: str, number: int) -> list[Fields]:
    others = [other for other in _ALTERNATIVES if other != token]
    return [_entry(token), *(_entry(o, 1.0 + rank) for rank, o in enumerate(others))][:number]
