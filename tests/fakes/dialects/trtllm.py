"""TensorRT-LLM's ``trtllm-serve``: the head before the first output, and a failure that just breaks the connection."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.dialects.answer import Ask, Json, Kind, Said
from tests.fakes.dialects.checks import misfit, openai_ask
from tests.fakes.dialects.serving import Dialect
from tests.fakes.dialects.voice import (
    CREATED_UNIX_S,
    DONE,
    OWN_MODEL,
    Refused,
    Turn,
    Voice,
    chat_logprobs,
    empty,
    of_text,
    openai_top,
    page,
    sse,
    stream_head,
    text_logprobs,
    usage_numbers,
)
from tests.fakes.scripted import Head, Request, Script, Step, end, eof

FIELDS: Mapping[str, str] = {
    "model": "str",
    "stream": "bool null",
    "stream_options": "object null",
    "n": "int",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "presence_penalty": "number null",
    "frequency_penalty": "number null",
    "seed": "int null",
    "stop": "str strs null",
    "response_format": "object null",
    "tools": "list null",
}
CHAT_FIELDS = {**FIELDS, "messages": "list", "logprobs": "bool null", "top_logprobs": "int null"}
TEXT_FIELDS = {**FIELDS, "prompt": "str list", "logprobs": "int null"}


def error_page(status: int, message: str, kind: str) -> Script:
    return page({"message": message, "type": kind, "code": status, "object": "error"}, status)


class _Completion(Voice):
    kind: Kind
    fields: Mapping[str, str]
    required: str
    prefix: str
    chunk_object: str
    whole_object: str

    @property
    def ident(self) -> str:
        return f"{self.prefix}{self.number:02x}"

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or next((f for f in ("model", self.required) if f not in body), None)
        if wrong:
            raise Refused(page({"error": f"[{{'loc': ('body', '{wrong}'), 'msg': 'Input is not valid'}}]"}, 400))
        return openai_ask(body, self.kind)

    def head(self, ask: Ask) -> Head:
        return stream_head(("server", "uvicorn"), ("content-type", "text/event-stream; charset=utf-8"))

    def chunk(self, choices: list[Json], usage: Json | None = None) -> Step:
        top = openai_top(self.ident, self.chunk_object)
        return sse({**top, "choices": choices, "usage": usage})

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        usage = [self.chunk([], self.usage(ask, said))] if ask.usage else []
        return [*usage, DONE, end()]

    def broken(self, ask: Ask) -> list[Step]:
        return [eof()]

    def failed(self, ask: Ask) -> Script:
        return error_page(500, self.say.message, "internal_error")

    def full(self, ask: Ask) -> Script:
        return error_page(503, self.say.message, "service_unavailable")

    def usage(self, ask: Ask, said: Said) -> Json:
        prompt, completion = usage_numbers(said, ask)
        counts: Json = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
        return {**counts, "prompt_tokens_details": {"cached_tokens": said.cached_tokens}}

    def whole(self, ask: Ask, said: Said) -> Script:
        choices = [self.choice(ask, said, index) for index in range(ask.choices)]
        top = openai_top(self.ident, self.whole_object)
        return page({**top, "choices": choices, "usage": self.usage(ask, said)})

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        raise NotImplementedError


class Chat(_Completion):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"
    prefix = "chatcmpl-0a1b2c3d4e5f60718293a4b5c6d7e8"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        steps: list[Step] = []
        if turn.first:
            steps.append(self._chunk(turn.index, {"role": "assistant"}))
        kind, text, call = turn.output
        delta: Json = {"content": text}
        if kind == "call":
            function = {"name": text, "arguments": ""}
            delta = {"tool_calls": [{"id": f"call_{call}", "index": call, "type": "function", "function": function}]}
        elif kind == "arguments":
            delta = {"tool_calls": [{"index": call, "function": {"arguments": text}}]}
        elif kind == "reasoning":
            delta = {"reasoning_content": text}
        logprobs = chat_logprobs(of_text(turn), ask.logprobs)
        return [*steps, self._chunk(turn.index, delta, logprobs, said.finish if turn.last else None)]

    def _chunk(self, index: int, delta: Json, logprobs: Json | None = None, finish: str | None = None) -> Step:
        ended = {"finish_reason": finish, "stop_reason": None}
        return self.chunk([{"index": index, "delta": delta, "logprobs": logprobs, **ended}])

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        calls = [
            {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(said.calls)
        ]
        message: Json = {"role": "assistant", "content": said.text, "reasoning_content": said.reasoning or None}
        message |= {"tool_calls": calls}
        logprobs = chat_logprobs(said.pieces, ask.logprobs)
        ended = {"finish_reason": said.finish, "stop_reason": said.stopped_by}
        return {"index": index, "message": message, "logprobs": logprobs, **ended}


class Text(_Completion):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"
    prefix = "cmpl-0a1b2c3d4e5f60718293a4b5c6d7e8"
    chunk_object = whole_object = "text_completion"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        choice = {"index": turn.index, "text": turn.output.text, "logprobs": text_logprobs(of_text(turn), ask.logprobs)}
        return [self.chunk([{**choice, "finish_reason": said.finish if turn.last else None, "stop_reason": None}])]

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        logprobs = text_logprobs(said.pieces, ask.logprobs)
        ended = {"finish_reason": said.finish, "stop_reason": said.stopped_by}
        return {"index": index, "text": said.text, "logprobs": logprobs, **ended}


class TrtllmDialect(Dialect):
    """It lets requests wait. What it does with ``n`` and log-probabilities is not known; this one does both."""

    name = "trtllm"
    tells_cached = True
    choices = None
    logprobs = None
    text_logprobs = None
    streams_text_logprobs = None
    embeds = False
    refuses_when_full = False
    recognisable = False
    tells_failures = False

    def endpoints(self) -> Mapping[str, Voice]:
        return {"/v1/chat/completions": Chat(self.say, self.load), "/v1/completions": Text(self.say, self.load)}

    def pages(self) -> Mapping[str, Script]:
        model = {"id": OWN_MODEL, "object": "model", "created": CREATED_UNIX_S, "owned_by": "tensorrt_llm"}
        stats = {"iter": 7, "numActiveRequests": self.load.running, "numQueuedRequests": self.load.waiting}
        return {
            "/health": empty(),
            "/version": page({"version": "1.2.0"}),
            "/server_info": page({}),
            "/v1/models": page({"object": "list", "data": [model]}),
            "/metrics": page([stats]),
        }

    def lost(self, request: Request) -> Script:
        return page({"detail": "Not Found"}, 404)

    def unread(self, request: Request) -> Script:
        return page({"error": "[{'type': 'json_invalid', 'loc': ('body', 1), 'msg': 'JSON decode error'}]"}, 400)
