"""What the dialects of OpenAI's calls share: the order of the chunks. Each fills in its own fields."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Sequence
from typing import ClassVar, Literal
from zlib import crc32

from gateway.simulator.bodies import ChatBody, CompletionBody, EmbeddingBody, parse
from gateway.simulator.calls import CallReader, Embedding, Generation, Rules
from gateway.simulator.dialects.protocol import Asked, Reply, Request, State, Vectors
from gateway.simulator.dialects.sse import DONE, frame
from gateway.simulator.embedding import embed
from gateway.simulator.output import Output
from gateway.simulator.text import FinishReason, Piece
from gateway.simulator.transcript import Fields, Transcript

Kind = Literal["chat", "completion"]


def read_openai(rules: Rules, request: Request, state: State, *, any_type: bool = True) -> tuple[Kind, Generation]:
    """Reads a chat call, or a completion call if the path says so. Raises ``CallRejected``."""
    reader = reader_of(rules, state)
    content_type = "application/json" if any_type else request.content_type
    if request.path.endswith("chat/completions"):
        return "chat", reader.chat(parse(ChatBody, content_type, request.body))
    return "completion", reader.completion(parse(CompletionBody, content_type, request.body))


def reader_of(rules: Rules, state: State) -> CallReader:
    """Returns the reader for an engine."""
    return CallReader(state.settings.models, state.settings.context_tokens, rules)


class OpenAiWire:
    """A chat or completion answer; the hooks hold what most engines do.

    Args:
        id: The answer's, with its prefix.
    """

    media_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    tells_abort: ClassVar[bool] = False
    """An answer that was ended from outside ends with a finish reason, not with an error."""

    def __init__(self, kind: Kind, call: Generation, id: str, created_unix_s: int) -> None:
        self.kind: Kind = kind
        self.call = call
        self.id = id
        self.created_unix_s = created_unix_s
        self.said = Transcript(call)

    @classmethod
    def asked(cls, kind: Kind, call: Generation, id: str, created_unix_s: int) -> Asked:
        """Returns a call with the wire for it."""
        return Asked(call, cls(kind, call, id, created_unix_s))

    def add(self, output: Output) -> None:
        """Keeps one output."""
        self.said.add(output)

    def frames(self, output: Output) -> list[bytes]:
        """Returns a role chunk, a chunk with output, a chunk with the finish reason: as many as the dialect sends."""
        index, piece, finish = output.choice, output.piece, output.finish_reason
        broken_before = self.said.aborted
        first = self.said.add(output)
        if self.said.aborted and not self.tells_abort:
            return [] if broken_before else [self.broken()]
        frames: list[bytes] = []
        if first and self.kind == "chat" and (opening := self.opening()) is not None:
            frames.append(self._frame(index, opening, None, ()))
        shown = self._shown(index, piece, first=first) if piece is not None and piece.text else None
        merged = finish is not None and self.merges(index, finish)
        if shown is not None or merged:
            pieces = () if piece is None or not piece.text else (piece,)
            frames.append(self._frame(index, shown or self._empty(index), finish if merged else None, pieces))
        if finish is not None and not merged:
            frames += [self._frame(index, delta, None, ()) for delta in self.before_end(index)]
            if self.tells_finish(index):
                frames.append(self._frame(index, self._empty(index), finish, ()))
        return frames

    def end(self) -> list[bytes]:
        """Returns the usage chunk, if it was asked for, and the end marker."""
        if self.said.aborted and not self.tells_abort:
            return []
        return [*([self.encode(self.usage_chunk())] if self.sends_usage() else []), DONE]

    def reply(self) -> Reply:
        """Returns the whole answer."""
        if self.said.aborted and not self.tells_abort:
            return self.broken_reply()
        return Reply(200, self.body())

    # What the dialects fill in.

    def opening(self) -> Fields | None:
        """Returns the delta of a chunk in front of the first token."""
        return {"role": "assistant", "content": ""}

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        """Returns the delta for one token, or None if it isn't shown."""
        raise NotImplementedError

    def before_end(self, index: int) -> list[Fields]:
        """Returns deltas that could only be written at the end of a choice."""
        return []

    def merges(self, index: int, finish: FinishReason) -> bool:
        """Whether the finish reason stands on the chunk of the last token."""
        return False

    def tells_finish(self, index: int) -> bool:
        """Whether there is a finish reason at all."""
        return True

    def empty_delta(self) -> Fields:
        """Returns the delta of a chunk that has only a finish reason."""
        return {}

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        """Returns one entry of ``choices``; ``payload`` is its delta or text."""
        raise NotImplementedError

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        """Returns a chunk, of the choice ``index`` or (None) of usage."""
        return self.head(".chunk" if self.kind == "chat" else "") | {"choices": choices}

    def sends_usage(self) -> bool:
        """Whether a chunk with usage follows the choices."""
        return self.call.include_usage

    def usage_chunk(self) -> Fields:
        """Returns that chunk."""
        return self.chunk([], None, None) | {"usage": self.usage()}

    def usage(self) -> Fields:
        """Returns the tokens so far."""
        prompt, completion = self.call.prompt_tokens, self.said.completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def encode(self, chunk: Fields) -> bytes:
        """Returns the frame of a chunk."""
        return frame(chunk)

    def broken(self) -> bytes:
        """Returns the last bytes of a stream that was ended from outside."""
        raise NotImplementedError

    def broken_reply(self) -> Reply:
        """Returns the answer to a call without a stream that was ended from outside."""
        raise NotImplementedError

    def body(self) -> Fields:
        """Returns the whole answer."""
        raise NotImplementedError

    # What they use.

    def head(self, suffix: str = "") -> Fields:
        """Returns the first fields of a chunk or (no suffix) of a whole answer."""
        name = ("chat.completion" if self.kind == "chat" else "text_completion") + suffix
        return {"id": self.id, "object": name, "created": self.created_unix_s, "model": self.call.model}

    def logprobs(self, index: int, pieces: Sequence[Piece]) -> Fields | None:
        """Returns the log probabilities of tokens, if they were asked for."""
        if self.kind == "chat":
            return self.said.chat_logprobs(pieces)
        return self.said.completion_logprobs(index, pieces)

    def is_first_argument(self, index: int) -> bool:
        """Whether the last token is the first of a tool call's arguments: some engines send the name only then."""
        return sum(piece.channel == "tool_arguments" for piece in self.said.pieces[index]) == 1

    def calls(self, index: int, id: str) -> list[Fields]:
        """Returns the tool calls of a whole answer; none if the call was cut off."""
        if not self.said.called(index):
            return []
        function = {
            "name": self.said.text(index, "tool_name"),
            "arguments": self.said.text(index, "tool_arguments"),
        }
        return [{"id": id, "type": "function", "function": function}]

    def content(self, index: int) -> str | None:
        """Returns the content of a whole answer; a tool call that was cut off comes out as content, as it came."""
        if self.said.called(index):
            return None
        cut_off = self.said.text(index, "tool_name") + self.said.text(index, "tool_arguments")
        return self.said.text(index, "content") + cut_off or None

    def hashed(self, digits: int) -> str:
        """Returns hexadecimal digits that belong to this answer."""
        return (f"{crc32(self.id.encode()):08x}{self.created_unix_s & 0xFFFFFFFF:08x}" * 4)[:digits]

    def _shown(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        if self.kind == "chat":
            return self.delta(index, piece, first=first)
        return {"text": piece.text} if piece.channel == "content" else None

    def _empty(self, index: int) -> Fields:
        return self.empty_delta() if self.kind == "chat" else {"text": ""}

    def _frame(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> bytes:
        wrapped: Fields = {"delta": payload} if self.kind == "chat" else payload
        return self.encode(self.chunk([self.choice(index, wrapped, finish, pieces)], index, finish))


def read_embeddings(rules: Rules, request: Request, state: State, *, any_type: bool = True) -> Embedding:
    """Reads a call of /v1/embeddings. Raises ``CallRejected``."""
    content_type = "application/json" if any_type else request.content_type
    return reader_of(rules, state).embedding(parse(EmbeddingBody, content_type, request.body))


def embedding_entries(call: Embedding) -> list[Fields]:
    """Returns the vectors as entries of ``data``."""
    entries: list[Fields] = []
    for index, item in enumerate(call.inputs):
        vector = embed(item.text, call.dimensions)
        packed = b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if call.base64 else vector
        entries.append({"object": "embedding", "index": index, "embedding": packed})
    return entries


def embedded(rules: Rules, request: Request, state: State) -> Vectors:
    """Reads a call of /v1/embeddings and answers it in OpenAI's shape. Raises ``CallRejected``."""
    call = read_embeddings(rules, request, state)
    tokens = sum(item.tokens for item in call.inputs)
    body: Fields = {"object": "list", "data": embedding_entries(call), "model": call.model}
    return Vectors(call, Reply(200, body | {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}))


def model_list(state: State, owner: str, **more: object) -> Reply:
    """Returns the answer of /v1/models."""
    rest: Fields = {"object": "model", "created": state.started_unix_s, "owned_by": owner} | more
    return Reply(200, {"object": "list", "data": [{"id": name} | rest for name in state.settings.models]})
