"""llama.cpp b11434: choices first in each chunk, one usage a choice, and a connection that ends with its stream."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.dialects.answer import Ask, Json, Kind, Said
from tests.fakes.dialects.checks import misfit, openai_ask, openai_embed
from tests.fakes.dialects.serving import Dialect
from tests.fakes.dialects.voice import (
    CREATED_UNIX_S,
    DONE,
    OWN_MODEL,
    Headers,
    Refused,
    Turn,
    Voice,
    chat_logprobs,
    of_text,
    page,
    sse,
    stream_head,
    vectors,
)
from tests.fakes.scripted import Body, Head, Request, Script, Step, eof, wire

HEADERS = (("Server", "llama.cpp"), ("Access-Control-Allow-Origin", ""))
KEPT = (*HEADERS, ("Keep-Alive", "timeout=5, max=100"))
STREAM = (*HEADERS, ("X-Accel-Buffering", "no"), ("Content-Type", "text/event-stream"), KEPT[-1])
JSON = "application/json; charset=utf-8"
BUILD = "b11434-abc1234"
IDENT = "chatcmpl-9JrkT4y55YvNFqad9bQC9W9BYkEk4H"
TOP: Mapping[str, object] = {"created": CREATED_UNIX_S, "model": OWN_MODEL, "system_fingerprint": BUILD}

FIELDS: Mapping[str, str] = {
    "stream": "bool null",
    "stream_options": "object null",
    "n": "int null",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "top_k": "int null",
    "min_p": "number null",
    "presence_penalty": "number null",
    "frequency_penalty": "number null",
    "repeat_penalty": "number null",
    "seed": "int null",
    "stop": "str strs null",
    "logit_bias": "object list null",
    "response_format": "object null",
    "tools": "list null",
    "tool_choice": "str object null",
    "parallel_tool_calls": "bool null",
}
CHAT_FIELDS = {**FIELDS, "messages": "list", "logprobs": "bool null", "top_logprobs": "int null"}
TEXT_FIELDS = {**FIELDS, "prompt": "str list", "logprobs": "int null"}


def error_page(status: int, message: str, kind: str) -> Script:
    told = {"error": {"code": status, "message": message, "type": kind}}
    return closing_page(told, status)


def closing_page(value: object, status: int, content_type: str = JSON) -> Script:
    """An answer after which the server closes the connection."""
    headers: Headers = (*HEADERS, ("Connection", "close"))
    return [*page(value, status, headers, content_type)[:-1], eof()]


def refuse(message: str) -> Refused:
    return Refused(error_page(400, message, "invalid_request_error"))


class _Completion(Voice):
    comment = b":\n\n"
    kind: Kind
    fields: Mapping[str, str]
    required: str

    @property
    def ident(self) -> str:
        return f"{IDENT}{self.number:02x}"

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or (None if self.required in body else self.required)
        if wrong:
            raise refuse(f"[json.exception.type_error.302] {wrong} is missing or of a wrong type")
        if (body.get("n") or 1) > self.load.slots:
            raise refuse(f"n_cmpl cannot be greater than the number of slots ({self.load.slots})")
        limit = body.get("max_tokens")
        if limit is not None and limit < -1:
            raise refuse("max_tokens must be -1 or more")
        if self.kind == "chat" and body.get("top_logprobs") is not None and not body.get("logprobs"):
            raise refuse("top_logprobs requires logprobs to be set to true")
        if self.kind == "chat" and body.get("logprobs") and body.get("tools") and body.get("stream"):
            raise refuse("logprobs is not supported with tools + stream")
        ask = openai_ask(body, self.kind)
        return (
            ask if ask.max_tokens is None or ask.max_tokens >= 0 else openai_ask({**body, "max_tokens": None}, ask.kind)
        )

    def head(self, ask: Ask) -> Head:
        return stream_head(*STREAM)

    def broken(self, ask: Ask) -> list[Step]:
        frame = sse({"error": {"code": 500, "message": self.say.message, "type": "server_error"}})
        return [frame, *self.close()]

    def close(self) -> list[Step]:
        """The body ends as it should, and then the connection does, although the head said that it would be kept."""
        return [wire(b"0\r\n\r\n"), eof()]

    def failed(self, ask: Ask) -> Script:
        return error_page(500, self.say.message, "server_error")

    def full(self, ask: Ask) -> Script:
        return error_page(503, self.say.message, "unavailable_error")

    def usage(self, said: Said) -> Json:
        total = said.prompt_tokens + said.completion_tokens
        counts: Json = {"completion_tokens": said.completion_tokens, "prompt_tokens": said.prompt_tokens}
        return {**counts, "total_tokens": total, "prompt_tokens_details": {"cached_tokens": said.cached_tokens}}

    def timings(self, said: Said) -> Json:
        cached, prompt, predicted = said.cached_tokens, said.prompt_tokens - said.cached_tokens, said.completion_tokens
        return {
            "cache_n": cached,
            "prompt_n": prompt,
            "prompt_ms": 30.5,
            "predicted_n": predicted,
            "predicted_ms": 61.25,
        }

    def whole(self, ask: Ask, said: Said) -> Script:
        choices = [self.choice(ask, said, index) for index in range(ask.choices)]
        kind = "chat.completion" if self.kind == "chat" else "text_completion"
        answer = {
            "choices": choices,
            **TOP,
            "object": kind,
            "usage": self.usage(said),
            "id": self.ident,
        }
        return page({**answer, "timings": self.timings(said)}, headers=KEPT, content_type=JSON)

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        raise NotImplementedError


class Chat(_Completion):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"

    def chunk(self, choices: list[Json], **more: object) -> Body:
        top = {
            "created": CREATED_UNIX_S,
            "id": self.ident,
            "model": OWN_MODEL,
            "system_fingerprint": BUILD,
        }
        return sse({"choices": choices, **top, "object": "chat.completion.chunk", **more})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        kind, text, call = turn.output
        delta: Json = {"content": text}
        if kind == "call":
            head = {
                "index": call,
                "id": f"{call:032x}",
                "type": "function",
                "function": {"name": text, "arguments": ""},
            }
            delta = {"tool_calls": [head]}
        elif kind == "arguments":
            delta = {"tool_calls": [{"index": call, "function": {"arguments": text}}]}
        elif kind == "reasoning":
            delta = {"reasoning_content": text}
        frames: list[Body] = []
        if turn.first:
            frames.append(self.chunk([self._choice(turn.index, {"role": "assistant", "content": None})]))
        if text:
            logprobs = chat_logprobs(of_text(turn), ask.logprobs)
            more = {} if logprobs is None or not of_text(turn) else {"logprobs": logprobs}
            frames.append(self.chunk([{**self._choice(turn.index, delta), **more}]))
        return [Body(b"".join(frame.data for frame in frames))]  # the role and the first token go in one write

    def _choice(self, index: int, delta: Json, finish: str | None = None) -> Json:
        return {"finish_reason": finish, "index": index, "delta": delta}

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        timings = {} if ask.usage else {"timings": self.timings(said)}
        steps: list[Step] = []
        for index in range(ask.choices):
            steps.append(self.chunk([self._choice(index, {}, said.finish)], **timings))
            if ask.usage:
                steps.append(self.chunk([], usage=self.usage(said), timings=self.timings(said)))
        return [*steps, DONE, *self.close()]

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        message: Json = {"role": "assistant", "content": said.text}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": n, "arguments": a}, "id": f"{i:032x}"}
                for i, (n, a) in enumerate(said.calls)
            ]
        logprobs = chat_logprobs(said.pieces, ask.logprobs)
        more = {} if logprobs is None else {"logprobs": logprobs}
        return {"finish_reason": said.finish, "index": index, "message": message, **more}


class Text(_Completion):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"

    def chunk(self, choice: Json, **more: object) -> Step:
        return sse({"choices": [choice], **TOP, "object": "text_completion", **more, "id": self.ident})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        if not turn.output.text:
            return []
        batch = [sse(None)] if ask.prompts > 1 and turn.at == turn.index == 0 else []
        choice = {"text": turn.output.text, "index": turn.index, "logprobs": chat_logprobs(of_text(turn), ask.logprobs)}
        return [*batch, self.chunk({**choice, "finish_reason": None})]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        counted = {"usage": self.usage(said), "timings": self.timings(said)}
        ends = [{"text": "", "index": i, "logprobs": None, "finish_reason": said.finish} for i in range(ask.choices)]
        return [*(self.chunk(choice, **counted) for choice in ends), DONE, *self.close()]

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        logprobs = chat_logprobs(said.pieces, ask.logprobs)
        return {"text": said.text, "index": index, "logprobs": logprobs, "finish_reason": said.finish}


class LlamacppDialect(Dialect):
    """Its only "no room" is a model that still loads; requests beyond its slots wait."""

    name = "llamacpp"
    obeys_tool_choice = False
    tells_cached = True

    def endpoints(self) -> Mapping[str, Voice]:
        chat = Chat(self.say, self.load)
        text = Text(self.say, self.load)
        return {"/v1/chat/completions": chat, "/chat/completions": chat, "/v1/completions": text}

    def embed(self, path: str, body: Json) -> Script | None:
        if path != "/v1/embeddings":
            return None
        if "input" not in body or misfit(body, {"input": "str list", "encoding_format": "str null"}):
            raise refuse("input must be a string or a list")
        ask = openai_embed(body)
        self.asks.append(ask)
        more = {"encoding_format": "base64"} if ask.base64 else {}
        data = [
            {"embedding": v, "index": i, "object": "embedding", **more} for i, v in enumerate(vectors(self.say, ask))
        ]
        usage = {"prompt_tokens": self.say.prompt_tokens, "total_tokens": self.say.prompt_tokens}
        answer = {"model": OWN_MODEL, "object": "list", "usage": usage, "data": data}
        return page(answer, headers=KEPT, content_type=JSON)

    def pages(self) -> Mapping[str, Script]:
        load = self.load
        meta = {"n_ctx": load.context_tokens, "n_ctx_train": 8192, "n_params": 134515008}
        model = {"id": OWN_MODEL, "object": "model", "created": CREATED_UNIX_S, "owned_by": "llamacpp", "meta": meta}
        models = {"models": [{"name": OWN_MODEL, "model": OWN_MODEL}], "object": "list", "data": [model]}
        settings = {"n_ctx": load.context_tokens}
        props = {"default_generation_settings": settings, "total_slots": load.slots, "model_path": "model.gguf"}
        busy = min(load.running, load.slots)
        slots = [{"id": i, "n_ctx": load.context_tokens, "is_processing": i < busy} for i in range(load.slots)]
        return {
            "/health": page({"status": "ok"}, headers=KEPT, content_type=JSON),
            "/props": page({**props, "build_info": BUILD}, headers=KEPT, content_type=JSON),
            "/slots": page(slots, headers=KEPT, content_type=JSON),
            "/v1/models": page(models, headers=KEPT, content_type=JSON),
            "/metrics": page(self._metrics(), headers=KEPT, content_type="text/plain; version=0.0.4"),
        }

    def _metrics(self) -> str:
        return (
            "# HELP llamacpp:requests_processing Number of requests processing.\n"
            "# TYPE llamacpp:requests_processing gauge\n"
            f"llamacpp:requests_processing {self.load.running}\n"
            "# HELP llamacpp:requests_deferred Number of requests deferred.\n"
            "# TYPE llamacpp:requests_deferred gauge\n"
            f"llamacpp:requests_deferred {self.load.waiting}\n"
        )

    def lost(self, request: Request) -> Script:
        return error_page(404, "File Not Found", "not_found_error")

    def unread(self, request: Request) -> Script:
        return error_page(400, "[json.exception.parse_error.101] parse error", "invalid_request_error")
