"""vLLM 0.33: the head before anything else, the finish reason on the last piece, ``[DONE]`` after errors too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.dialects.answer import Ask, Json, Kind, Said
from tests.fakes.dialects.checks import given, misfit, openai_ask, openai_embed
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
FINGERPRINT = "vllm-0.33.0-256941fa"
MOST_STOP_STRINGS = 4
MOST_LOGPROBS = 20

FIELDS: Mapping[str, str] = {
    "model": "str null",
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
    "repetition_penalty": "number null",
    "seed": "int null",
    "stop": "str strs null",
    "logit_bias": "object null",
    "response_format": "object null",
    "tools": "list null",
    "tool_choice": "str object null",
    "parallel_tool_calls": "bool null",
    "reasoning_effort": "str null",
}
CHAT_FIELDS = {**FIELDS, "messages": "list", "logprobs": "bool null", "top_logprobs": "int null"}
TEXT_FIELDS = {**FIELDS, "prompt": "str list", "logprobs": "int null", "suffix": "str null", "echo": "bool null"}


def error_page(status: int, message: str, kind: str, param: str | None = None) -> Script:
    told = {"message": message, "type": kind, "param": param, "code": status}
    return page({"error": told}, status, HEADERS)


def refuse(message: str, param: str | None = None, kind: str = "BadRequestError") -> Refused:
    return Refused(error_page(400, message, kind, param))


def finish(ask: Ask, said: Said) -> str:
    """The reason, which is ``stop`` after the call of a tool that the request named."""
    return "stop" if ask.named_tool and said.finish == "tool_calls" else said.finish


def check_model(body: Json) -> None:
    if body.get("model") not in (None, "", OWN_MODEL):
        words = f"The model `{body['model']}` does not exist. Valid aliases: {OWN_MODEL}."
        raise Refused(error_page(404, words, "NotFoundError", "model"))


def check_values(body: Json) -> None:
    if body.get("stream_options") is not None and not body.get("stream"):
        raise refuse("Stream options can only be defined when `stream=True`.", "stream_options")
    if given(body, "max_completion_tokens", "max_tokens") == 0:
        raise refuse("max_tokens must be at least 1, got 0.", "max_tokens")
    temperature, top_p = body.get("temperature"), body.get("top_p")
    if temperature is not None and not 0 <= temperature <= 2:
        raise refuse(f"temperature must be in [0, 2], got {temperature}.", "temperature")
    if top_p is not None and not 0 < top_p <= 1:
        raise refuse(f"top_p must be in (0, 1], got {top_p}.", "top_p")
    if temperature == 0 and (body.get("n") or 1) > 1:
        raise refuse("n must be 1 when using greedy sampling.", "n")
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > MOST_STOP_STRINGS:  # pyright: ignore[reportUnknownArgumentType]
        raise refuse(f"At most {MOST_STOP_STRINGS} stop strings are allowed.", "stop")
    if body.get("tools") == []:
        raise refuse("`tools` must not be an empty list.", "tools")
    if body.get("tool_choice") not in (None, "none") and not body.get("tools"):
        raise refuse("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if (body.get("top_logprobs") or 0) > MOST_LOGPROBS:
        raise refuse(f"Requested sample logprobs is greater than max allowed: {MOST_LOGPROBS}.", "logprobs")


TIMES = {  # with --enable-per-request-metrics
    "time_to_first_token_ms": 61.5,
    "generation_time_ms": 142.25,
    "queue_time_ms": 0.75,
    "mean_itl_ms": 28.5,
    "tokens_per_second": 29.5,
}


class _Completion(Voice):
    comment = b": keep-alive\n\n"
    kind: Kind
    fields: Mapping[str, str]
    required: str
    prefix: str
    chunk_object: str
    whole_object: str

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or (None if self.required in body else self.required)
        if wrong:
            words = f"1 validation error:\n  {{'loc': 'body.{wrong}', 'msg': 'wrong type or missing'}}"
            raise refuse(words, f"body.{wrong}", "Bad Request")
        check_model(body)
        check_values(body)
        return openai_ask(body, self.kind)

    def head(self, ask: Ask) -> Head:
        return stream_head(*HEADERS, ("content-type", "text/event-stream; charset=utf-8"))

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        if not ask.usage:
            return [DONE, end()]
        told = {"metrics": TIMES} if self.say.timed else {}
        return [self.chunk([], usage=self.usage(ask, said), system_fingerprint=FINGERPRINT, **told), DONE, end()]

    def broken(self, ask: Ask) -> list[Step]:
        return [sse(self.error(500, "InternalServerError", self.say.message)), DONE, end()]

    def failed(self, ask: Ask) -> Script:
        return error_page(500, self.say.message, "InternalServerError")

    def full(self, ask: Ask) -> Script:
        if ask.stream and self.say.busy == "late":
            frame = sse(self.error(503, "Service Unavailable", self.say.message))
            return [self.head(ask), frame, DONE, end()]
        return error_page(503, self.say.message, "Service Unavailable")

    def error(self, status: int, kind: str, message: str) -> Json:
        return {"error": {"message": message, "type": kind, "param": None, "code": status}}

    def usage(self, ask: Ask, said: Said) -> Json:
        prompt, completion = usage_numbers(said, ask)
        usage: Json = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
        return {**usage, "prompt_tokens_details": {"cached_tokens": said.cached_tokens}}

    def top(self, kind: str) -> Json:
        return openai_top(f"{self.prefix}{self.number:02x}", kind)

    def chunk(self, choices: list[Json], **more: object) -> Step:
        return sse({**self.top(self.chunk_object), "choices": choices, **more})

    def whole(self, ask: Ask, said: Said) -> Script:
        choices = [self.choice(ask, said, index) for index in range(ask.choices)]
        answer = {
            **self.top(self.whole_object),
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(ask, said),
            "kv_transfer_params": None,
            "metrics": TIMES if self.say.timed else None,
        }
        return page(answer, headers=HEADERS)

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        raise NotImplementedError


class Chat(_Completion):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"
    prefix = "chatcmpl-9a3a397bd395c3"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        steps: list[Step] = []
        if turn.first:
            role = {"index": turn.index, "delta": {"role": "assistant", "content": ""}, **_OPEN}
            steps.append(self.chunk([role], prompt_token_ids=None, prompt_text=None))
        choice: Json = {"index": turn.index, "delta": self._delta(turn)}
        choice["logprobs"] = chat_logprobs(of_text(turn), ask.logprobs)
        if not turn.last:
            return [*steps, self.chunk([{**choice, "finish_reason": None, "token_ids": None}])]
        ended = {**choice, "finish_reason": finish(ask, said), "stop_reason": said.stopped_by, "token_ids": None}
        more = {} if ask.usage else {"system_fingerprint": FINGERPRINT}
        return [*steps, self.chunk([ended], **more)]

    def _delta(self, turn: Turn) -> Json:
        kind, text, call = turn.output
        if kind == "call":
            head = {"id": f"chatcmpl-tool-{call:016x}", "type": "function", "index": call, "function": {"name": text}}
            return {"content": None, "tool_calls": [head]}
        if kind == "arguments":
            return {"content": None, "tool_calls": [{"index": call, "function": {"arguments": text}}]}
        if kind == "reasoning":
            return {"reasoning": text}
        return {"content": text} if text else {}

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        message: Json = {"role": "assistant", "content": said.text or None, "refusal": None, "annotations": None}
        message |= {"audio": None, "function_call": None}
        if said.calls:
            message["tool_calls"] = [
                {"id": f"chatcmpl-tool-{i:016x}", "type": "function", "function": {"name": n, "arguments": a}}
                for i, (n, a) in enumerate(said.calls)
            ]
        message["reasoning"] = said.reasoning or None
        ended = {"finish_reason": finish(ask, said), "stop_reason": said.stopped_by, "token_ids": None}
        return {"index": index, "message": message, "logprobs": chat_logprobs(said.pieces, ask.logprobs), **ended}


_OPEN: Mapping[str, Any] = {"logprobs": None, "finish_reason": None}


class Text(_Completion):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"
    prefix = "cmpl-b552c5a3862248"
    chunk_object = whole_object = "text_completion"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        choice = {
            "index": turn.index,
            "text": turn.output.text,
            "logprobs": text_logprobs(of_text(turn), ask.logprobs),
            "finish_reason": said.finish if turn.last else None,
            "stop_reason": said.stopped_by if turn.last else None,
            "prompt_token_ids": None,
            "token_ids": None,
        }
        return [self.chunk([choice])]

    def choice(self, ask: Ask, said: Said, index: int) -> Json:
        logprobs = text_logprobs(said.pieces, ask.logprobs)
        ended = {"finish_reason": said.finish, "stop_reason": said.stopped_by, "token_ids": None}
        return {"index": index, "text": said.text, "logprobs": logprobs, **ended}


class VllmDialect(Dialect):
    name = "vllm"
    refuses_models = True
    developer = True
    aborts = True
    tells_cached = True

    def endpoints(self) -> Mapping[str, Voice]:
        voices: tuple[Voice, Voice] = (Chat(self.say, self.load), Text(self.say, self.load))
        return dict(zip(("/v1/chat/completions", "/v1/completions"), voices, strict=True))

    def embed(self, path: str, body: Json) -> Script | None:
        if path != "/v1/embeddings":
            return None
        wrong = misfit(body, {"input": "str list", "encoding_format": "str null"})
        if wrong or "input" not in body:
            raise refuse("1 validation error", f"body.{wrong or 'input'}", "Bad Request")
        check_model(body)
        ask = openai_embed(body)
        self.asks.append(ask)
        data = [{"index": i, "object": "embedding", "embedding": v} for i, v in enumerate(vectors(self.say, ask))]
        tokens = self.say.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
        top = openai_top("embd-b0904e00d38f100c", "list")
        return page({**top, "data": data, "usage": usage}, headers=HEADERS)

    def pages(self) -> Mapping[str, Script]:
        entry = {"id": OWN_MODEL, "object": "model", "created": CREATED_UNIX_S, "owned_by": "vllm", "root": OWN_MODEL}
        models = {"object": "list", "data": [{**entry, "parent": None, "max_model_len": self.load.context_tokens}]}
        return {
            "/health": empty(headers=HEADERS),
            "/ping": empty(headers=HEADERS),
            "/version": page({"version": "0.33.0"}, headers=HEADERS),
            "/load": page({"server_load": 0}, headers=HEADERS),
            "/v1/models": page(models, headers=HEADERS),
            "/metrics": page(self._metrics(), headers=HEADERS, content_type="text/plain; version=1.0.0; charset=utf-8"),
        }

    def _metrics(self) -> str:
        labels = f'{{engine="0",model_name="{OWN_MODEL}"}}'
        return (
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{labels} {float(self.load.running)}\n"
            "# TYPE vllm:num_requests_waiting gauge\n"
            f"vllm:num_requests_waiting{labels} {float(self.load.waiting)}\n"
            "# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            f"vllm:kv_cache_usage_perc{labels} {self.load.kv_usage_ratio}\n"
        )

    def lost(self, request: Request) -> Script:
        return page({"detail": "Not Found"}, 404, HEADERS)

    def unread(self, request: Request) -> Script:
        return error_page(400, "1 validation error:\n  {'type': 'json_invalid'}", "Bad Request", "body.1")

    def turned_away(self, request: Request) -> Script | None:
        if request.method == "POST" and request.header("content-type") != b"application/json":
            return error_page(400, "Unsupported Media Type: Only 'application/json' is allowed", "Bad Request")
        return None
