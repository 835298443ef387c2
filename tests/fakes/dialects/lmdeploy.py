"""LMDeploy 0.18: JSON with spaces, ``usage: null`` on every chunk if usage is asked for, errors without a wrapper."""

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
    spaced_json,
    sse,
    stream_head,
    text_logprobs,
    usage_numbers,
)
from tests.fakes.scripted import Head, Request, Script, Step, end

FIELDS: Mapping[str, str] = {
    "model": "str",
    "stream": "bool null",
    "stream_options": "object null",
    "n": "int null",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "seed": "int null",
    "stop": "str strs null",
    "response_format": "object null",
    "tools": "list null",
}
CHAT_FIELDS = {**FIELDS, "messages": "str list", "logprobs": "bool null", "top_logprobs": "int null"}
TEXT_FIELDS = {**FIELDS, "prompt": "str list", "logprobs": "int null"}


def flat(status: int, message: str, kind: str) -> Json:
    return {"message": message, "type": kind, "code": status, "param": None, "object": "error"}


def error_page(status: int, message: str, kind: str = "invalid_request_error") -> Script:
    return page(flat(status, message, kind), status)


class _Completion(Voice):
    kind: Kind
    fields: Mapping[str, str]
    required: str
    chunk_object: str
    whole_object: str

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or next((f for f in ("model", self.required) if f not in body), None)
        if wrong:
            raise Refused(error_page(400, f"{wrong} is missing or of a wrong type"))
        return openai_ask(body, self.kind)

    def head(self, ask: Ask) -> Head:
        return stream_head(("server", "uvicorn"), ("content-type", "text/event-stream; charset=utf-8"))

    def chunk(self, ask: Ask, choices: list[Json], usage: Json | None = None) -> Step:
        told = {"usage": usage} if ask.usage else {}
        top = openai_top(str(self.number), self.chunk_object)
        return sse({**top, "choices": choices, **told}, spaced=True)

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        usage = [self.chunk(ask, [], self.usage(ask, said))] if ask.usage else []
        return [*usage, DONE, end()]

    def broken(self, ask: Ask) -> list[Step]:
        told = {"message": self.say.message, "type": "internal_error", "code": 500, "param": None}
        return [sse({"error": told}, spaced=True), DONE, end()]

    def failed(self, ask: Ask) -> Script:
        return error_page(500, self.say.message, "internal_error")

    def full(self, ask: Ask) -> Script:
        return error_page(503, self.say.message, "service_unavailable")

    def usage(self, ask: Ask, said: Said) -> Json:
        prompt, completion = usage_numbers(said, ask)
        return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}

    def whole(self, ask: Ask, said: Said) -> Script:
        choices = [self.choice(ask, said, index) for index in range(ask.choices)]
        top = openai_top(str(self.number), self.whole_object)
        return page(spaced_json({**top, "choices": choices, "usage": self.usage(ask, said)}))

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        raise NotImplementedError


class Chat(_Completion):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        kind, text, call = turn.output
        delta: Json = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        if kind == "call":
            function = {"name": text, "arguments": ""}
            head = {"id": f"chatcmpl-tool-{call}", "index": call, "type": "function", "function": function}
            delta |= {"content": None, "tool_calls": [head]}
        elif kind == "arguments":
            part = {"id": None, "index": call, "type": "function", "function": {"name": None, "arguments": text}}
            delta |= {"content": None, "tool_calls": [part]}
        elif kind == "reasoning":
            delta |= {"content": None, "reasoning_content": text}
        finish = said.finish if turn.last else None
        logprobs = chat_logprobs(of_text(turn), ask.logprobs)
        return [self.chunk(ask, [{"index": turn.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}])]

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        calls = [
            {"id": f"chatcmpl-tool-{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(said.calls)
        ]
        message: Json = {"role": "assistant", "content": said.text or None, "reasoning_content": said.reasoning or None}
        message |= {"tool_calls": calls or None}
        logprobs = chat_logprobs(said.pieces, ask.logprobs)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": said.finish}


class Text(_Completion):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"
    chunk_object = whole_object = "text_completion"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        choice = {"index": turn.index, "text": turn.output.text, "logprobs": text_logprobs(of_text(turn), ask.logprobs)}
        return [self.chunk(ask, [{**choice, "finish_reason": said.finish if turn.last else None}])]

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        logprobs = text_logprobs(said.pieces, ask.logprobs)
        return {"index": index, "text": said.text, "logprobs": logprobs, "finish_reason": said.finish}


class LmdeployDialect(Dialect):
    """What it does with ``n`` and log-probabilities is not known; this one does both."""

    name = "lmdeploy"
    choices = None
    streams_several_prompts = False
    logprobs = None
    text_logprobs = None
    streams_text_logprobs = None
    embeds = False
    refuses_when_full = False
    recognisable = False

    def endpoints(self) -> Mapping[str, Voice]:
        return {"/v1/chat/completions": Chat(self.say, self.load), "/v1/completions": Text(self.say, self.load)}

    def embed(self, path: str, body: Json) -> Script | None:
        return error_page(400, "Unsupported by turbomind.") if path == "/v1/embeddings" else None

    def pages(self) -> Mapping[str, Script]:
        model = {"id": OWN_MODEL, "object": "model", "created": CREATED_UNIX_S, "owned_by": "lmdeploy"}
        return {
            "/health": empty(),
            "/v1/models": page({"object": "list", "data": [{**model, "root": OWN_MODEL, "parent": None}]}),
            "/metrics": page(self._metrics(), content_type="text/plain; version=0.0.4; charset=utf-8"),
        }

    def _metrics(self) -> str:
        labels = f'{{engine="0",model_name="{OWN_MODEL}"}}'
        return (
            "# TYPE lmdeploy:num_requests_running gauge\n"
            f"lmdeploy:num_requests_running{labels} {float(self.load.running)}\n"
            "# TYPE lmdeploy:num_requests_waiting gauge\n"
            f"lmdeploy:num_requests_waiting{labels} {float(self.load.waiting)}\n"
            "# TYPE lmdeploy:gpu_cache_usage_perc gauge\n"
            f"lmdeploy:gpu_cache_usage_perc{labels} {self.load.kv_usage_ratio}\n"
        )

    def lost(self, request: Request) -> Script:
        return page({"detail": "Not Found"}, 404)

    def unread(self, request: Request) -> Script:
        return page({"detail": [{"type": "json_invalid", "loc": ["body", 1], "msg": "JSON decode error"}]}, 422)
