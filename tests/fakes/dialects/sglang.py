"""SGLang 0.5.23: the head with the first token, nulls for all that is empty, errors without a wrapper."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.dialects.answer import Ask, Json, Kind, Said, answer
from tests.fakes.dialects.checks import misfit, openai_ask, openai_embed
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
    vectors,
)
from tests.fakes.scripted import Head, Request, Script, Step, end

HEADERS = (("date", "Fri, 21 Aug 2026 10:00:00 GMT"), ("server", "uvicorn"))
IDENT = "1f0c5a6e2b7d4c8f9a0b1c2d3e4f5a"
END_TOKEN_ID = 2

# Fields of a plain type refuse null
FIELDS: Mapping[str, str] = {
    "model": "str",
    "stream": "bool",
    "stream_options": "object null",
    "n": "int",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "top_k": "int null",
    "min_p": "number null",
    "presence_penalty": "number",
    "frequency_penalty": "number",
    "repetition_penalty": "number null",
    "seed": "int null",
    "stop": "str strs null",
    "logit_bias": "object null",
    "response_format": "object null",
    "tools": "list null",
    "tool_choice": "str object null",
    "parallel_tool_calls": "bool",
    "reasoning_effort": "str null",
}
CHAT_FIELDS = {**FIELDS, "messages": "list", "logprobs": "bool", "top_logprobs": "int null"}
TEXT_FIELDS = {**FIELDS, "prompt": "str list", "logprobs": "int null"}
RANGES: Mapping[str, tuple[float, float]] = {
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "min_p": (0, 1),
    "repetition_penalty": (1e-9, 2),
    "top_p": (1e-9, 1),
    "temperature": (0, float("inf")),
}


def flat(status: int, message: str, kind: str) -> Json:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def error_page(status: int, message: str, kind: str) -> Script:
    return page(flat(status, message, kind), status, HEADERS)


class _Completion(Voice):
    head_first = False
    kind: Kind
    fields: Mapping[str, str]
    required: str

    @property
    def ident(self) -> str:
        return f"{IDENT}{self.number:02x}"

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or (None if self.required in body else self.required)
        if wrong:
            raise Refused(error_page(400, f"body.{wrong}: Input should be a valid value", "BadRequestError"))
        for name, (least, most) in RANGES.items():
            if body.get(name) is not None and not least <= body[name] <= most:
                raise Refused(error_page(400, f"{name} must be in range, got {body[name]}.", "BadRequestError"))
        return openai_ask(body, self.kind)

    def head(self, ask: Ask) -> Head:
        return stream_head(*HEADERS, ("content-type", "text/event-stream; charset=utf-8"))

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        usage = [self.chunk([], usage=self.usage(ask, said))] if ask.usage else []
        return [*usage, DONE, end()]

    def broken(self, ask: Ask) -> list[Step]:
        usage = self.usage(ask, answer(self.say, ask))
        told = [self.chunk([], usage=usage)] if ask.usage else []
        return [sse({"error": flat(500, self.say.message, "InternalServerError")}), *told, DONE, end()]

    def failed(self, ask: Ask) -> Script:
        return error_page(500, self.say.message, "InternalServerError")

    def full(self, ask: Ask) -> Script:
        if ask.stream:
            frame = sse({"error": flat(503, self.say.message, "SERVICE_UNAVAILABLE")})
            return [self.head(ask), frame, DONE, end()]
        return error_page(503, self.say.message, "SERVICE_UNAVAILABLE")

    def usage(self, ask: Ask, said: Said) -> Json:
        prompt, completion = usage_numbers(said, ask)
        counts: Json = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
        details = {"cached_tokens": said.cached_tokens}
        return {**counts, "prompt_tokens_details": details, "reasoning_tokens": 0, "completion_tokens_details": None}

    def chunk(self, choices: list[Json], **more: object) -> Step:
        raise NotImplementedError

    def matched(self, said: Said) -> str | int | None:
        return said.stopped_by or (END_TOKEN_ID if said.finish == "stop" else None)


class Chat(_Completion):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"

    def chunk(self, choices: list[Json], **more: object) -> Step:
        top = openai_top(self.ident, "chat.completion.chunk")
        return sse({**top, "choices": choices, **more})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        steps: list[Step] = []
        if turn.first:
            role = {"reasoning_content": None, "role": "assistant", "content": ""}
            steps.append(self.chunk([self._choice(turn.index, role)]))
        kind, text, call = turn.output
        logprobs = chat_logprobs(of_text(turn), ask.logprobs)
        if kind == "call":
            head = {"id": f"call_{call:024x}", "index": call, "type": "function"}
            steps.append(self._tool(turn.index, {**head, "function": {"name": text, "arguments": ""}}))
        elif kind == "arguments":
            part = {"id": None, "index": call, "type": "function", "function": {"name": None, "arguments": text}}
            steps.append(self._tool(turn.index, part))
        elif kind == "reasoning":
            steps.append(self.chunk([self._choice(turn.index, {"reasoning_content": text})]))
        elif text:
            delta = {"reasoning_content": None, "content": text}
            steps.append(self.chunk([self._choice(turn.index, delta, logprobs)]))
        return steps

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        ends = [
            {**self._choice(i, {"reasoning_content": None}), "finish_reason": said.finish}
            | {"matched_stop": self.matched(said)}
            for i in range(ask.choices)
        ]
        return [*(self.chunk([choice]) for choice in ends), *super().closing(ask, said)]

    def _choice(self, index: int, delta: Json, logprobs: Json | None = None) -> Json:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None, "matched_stop": None}

    def _tool(self, index: int, call: Json) -> Step:
        delta = {"role": None, "content": None, "reasoning_content": None, "tool_calls": [call]}
        return self.chunk([self._choice(index, delta)], usage=None)

    def whole(self, ask: Ask, said: Said) -> Script:
        calls = [
            {"id": f"call_{i:024x}", "index": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(said.calls)
        ]
        message: Json = {"role": "assistant", "content": said.text or None}
        message |= {"reasoning_content": said.reasoning or None, "tool_calls": calls or None}
        logprobs = chat_logprobs(said.pieces, ask.logprobs)
        ended = {"finish_reason": said.finish, "matched_stop": self.matched(said)}
        choices = [{"index": i, "message": message, "logprobs": logprobs, **ended} for i in range(ask.choices)]
        top = openai_top(self.ident, "chat.completion")
        return page({**top, "choices": choices, "usage": self.usage(ask, said)}, headers=HEADERS)


class Text(_Completion):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"

    def chunk(self, choices: list[Json], **more: object) -> Step:
        top = {
            "id": self.ident,
            "object": "text_completion",
            "created": CREATED_UNIX_S,
            "choices": choices,
        }
        return sse({**top, "model": OWN_MODEL, **more})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        finish, matched = (said.finish, self.matched(said)) if turn.last else (None, None)
        logprobs = text_logprobs(of_text(turn), ask.logprobs)
        choice = {"index": turn.index, "text": turn.output.text, "logprobs": logprobs}
        return [self.chunk([{**choice, "finish_reason": finish, "matched_stop": matched}], usage=None)]

    def whole(self, ask: Ask, said: Said) -> Script:
        logprobs = text_logprobs(said.pieces, ask.logprobs)
        ended = {"finish_reason": said.finish, "matched_stop": self.matched(said)}
        choices = [{"index": i, "text": said.text, "logprobs": logprobs, **ended} for i in range(ask.choices)]
        top = openai_top(self.ident, "text_completion")
        return page({**top, "choices": choices, "usage": self.usage(ask, said)}, headers=HEADERS)


class SglangDialect(Dialect):
    name = "sglang"
    aborts = True
    tells_cached = True

    def endpoints(self) -> Mapping[str, Voice]:
        return {"/v1/chat/completions": Chat(self.say, self.load), "/v1/completions": Text(self.say, self.load)}

    def embed(self, path: str, body: Json) -> Script | None:
        if path != "/v1/embeddings":
            return None
        if misfit(body, {"input": "str list", "encoding_format": "str"}) or "input" not in body:
            raise Refused(error_page(400, "body.input: Input should be a valid value", "BadRequestError"))
        ask = openai_embed(body)
        self.asks.append(ask)
        data = [{"embedding": v, "index": i, "object": "embedding"} for i, v in enumerate(vectors(self.say, ask))]
        usage = {"prompt_tokens": self.say.prompt_tokens, "total_tokens": self.say.prompt_tokens}
        return page({"object": "list", "data": data, "model": OWN_MODEL, "usage": usage}, headers=HEADERS)

    def pages(self) -> Mapping[str, Script]:
        load = self.load
        model = {"id": OWN_MODEL, "object": "model", "created": CREATED_UNIX_S, "owned_by": "sglang", "root": OWN_MODEL}
        rank: Json = {"dp_rank": 0, "num_running_reqs": load.running, "num_waiting_reqs": load.waiting}
        rank |= {"max_running_requests": load.slots, "token_usage": load.kv_usage_ratio, "cache_hit_rate": 0.5}
        loads = {"timestamp": CREATED_UNIX_S, "version": "0.5.23", "accelerator": "gpu", "loads": [rank]}
        models = {"object": "list", "data": [{**model, "max_model_len": load.context_tokens}]}
        return {
            "/health": empty(headers=HEADERS),
            "/ready": empty(headers=HEADERS),
            "/v1/models": page(models, headers=HEADERS),
            "/v1/loads": page(loads, headers=HEADERS),
            "/model_info": page({"model_path": OWN_MODEL, "is_generation": True}, headers=HEADERS),
            "/server_info": page({"version": "0.5.23", "max_running_requests": load.slots}, headers=HEADERS),
            "/metrics": page(self._metrics(), headers=HEADERS, content_type="text/plain; version=0.0.4"),
        }

    def _metrics(self) -> str:
        labels = f'{{engine_type="unified",model_name="{OWN_MODEL}",tp_rank="0"}}'
        return (
            "# TYPE sglang:num_running_reqs gauge\n"
            f"sglang:num_running_reqs{labels} {float(self.load.running)}\n"
            "# TYPE sglang:num_queue_reqs gauge\n"
            f"sglang:num_queue_reqs{labels} {float(self.load.waiting)}\n"
            "# TYPE sglang:token_usage gauge\n"
            f"sglang:token_usage{labels} {self.load.kv_usage_ratio}\n"
        )

    def lost(self, request: Request) -> Script:
        return page({"detail": "Not Found"}, 404, HEADERS)

    def unread(self, request: Request) -> Script:
        return error_page(400, "JSON decode error", "BadRequestError")
