"""LightLLM after 1.2: spaced JSON, usage always, no ``[DONE]`` after an error; natively ``data:`` without a space."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.fakes.dialects.answer import Ask, Json, Kind, Said
from tests.fakes.dialects.checks import as_object, misfit, openai_ask, sampling_of, turns_of, words
from tests.fakes.dialects.serving import Dialect
from tests.fakes.dialects.voice import (
    CREATED_UNIX_S,
    DONE,
    OWN_MODEL,
    Refused,
    Turn,
    Voice,
    openai_top,
    page,
    spaced_json,
    sse,
    stream_head,
    text_logprobs,
    usage_numbers,
)
from tests.fakes.scripted import Body, Head, Request, Script, Step, end

IDENT = "chatcmpl-5f0c5a6e2b7d4c8f9a0b1c2d3e4f5a"
FIRST_NUMBER = 176
MOST_STOP_STRINGS = 10
EFFORTS = (None, "low", "medium", "high")
# Null passes the schema, and then breaks the code behind it
NOT_NULL = (
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "n",
    "max_tokens",
    "do_sample",
    "ignore_eos",
    "seed",
)

FIELDS: Mapping[str, str] = {
    "model": "str",
    "stream": "bool null",
    "stream_options": "object null",
    "n": "int null",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "top_k": "int null",
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
CHAT_FIELDS = {**FIELDS, "messages": "list"}
TEXT_FIELDS = {**FIELDS, "prompt": "str list"}
PARAMETERS: Mapping[str, str] = {
    "do_sample": "bool",
    "temperature": "number",
    "top_p": "number",
    "top_k": "int",
    "presence_penalty": "number",
    "frequency_penalty": "number",
    "repetition_penalty": "number",
    "max_new_tokens": "int",
    "min_new_tokens": "int",
    "ignore_eos": "bool",
    "stop_sequences": "str strs null",
    "n": "int",
    "best_of": "int",
    "seed": "int",
}


def error_page(status: int, message: str, kind: str = "BadRequestError") -> Script:
    told = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return page(told, status)


def refuse(message: str) -> Refused:
    return Refused(error_page(400, message))


def check_sampling(values: Json) -> None:
    """Bounds of the sampling parameters."""
    for name in ("presence_penalty", "frequency_penalty"):
        if values.get(name, 0) < 0:
            raise refuse(f"{name} must >= 0.0, got {values[name]}")
    if values.get("temperature", 1) < 0:
        raise refuse(f"temperature must >= 0.0, got {values['temperature']}")
    if not 0 < values.get("top_p", 1) <= 1:
        raise refuse(f"top_p must be in (0.0, 1.0], got {values['top_p']}")
    top_k = values.get("top_k", -1)
    if top_k != -1 and top_k < 1:
        raise refuse(f"top_k must be -1 (disable), or at least 1, got {top_k}")
    if values.get("repetition_penalty", 1) < 1:
        raise refuse(f"repetition_penalty must >= 1.0, got {values['repetition_penalty']}")
    if values.get("seed", -1) < -1:
        raise refuse(f"seed must >= -1, got {values['seed']}")


class _OpenAi(Voice):
    kind: Kind
    fields: Mapping[str, str]
    required: str

    @property
    def ident(self) -> str:
        return f"{IDENT}{self.number:02x}"

    @property
    def request_number(self) -> str:
        return str(FIRST_NUMBER + self.number)

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or next((f for f in ("model", self.required) if f not in body), None)
        if wrong or body.get("reasoning_effort") not in EFFORTS:
            detail = [
                {"type": "value_error", "loc": ["body", wrong or "reasoning_effort"], "msg": "Input is not valid"}
            ]
            raise Refused(page({"detail": detail}, 422))
        if body.get("logit_bias") is not None:
            raise refuse("The logit_bias parameter is not currently supported")
        if body.get("function_call") not in (None, "none"):
            raise refuse("The function call feature is not supported")
        if body.get("suffix") is not None:
            raise refuse("The suffix parameter is not currently supported")
        many = any(name in body and body[name] is None for name in NOT_NULL)
        if many or len(words(body.get("stop"))) > MOST_STOP_STRINGS:
            raise Refused(page("Internal Server Error", 500, content_type="text/plain; charset=utf-8"))
        check_sampling(body)
        prompts: Any = body.get("prompt")
        if body.get("stream") and isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
            raise refuse("streaming is not supported for several prompts")
        return replace(openai_ask(body if self.kind == "text" else {**body, "logprobs": None}, self.kind), usage=True)

    def head(self, ask: Ask) -> Head:
        return stream_head(("content-type", "text/event-stream; charset=utf-8"))

    def broken(self, ask: Ask) -> list[Step]:
        told = {"message": self.say.message, "type": "server_error", "code": "stream_error"}
        return [sse({"error": told}, spaced=True), end()]

    def failed(self, ask: Ask) -> Script:
        return error_page(500, self.say.message, "InternalServerError")

    def full(self, ask: Ask) -> Script:
        """Only in ``pd_master`` mode, which keeps its status back until the first chunk."""
        return error_page(429, self.say.message, "RateLimitError")

    def usage(self, ask: Ask, said: Said) -> Json:
        prompt, completion = usage_numbers(said, ask)
        counts: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return {**counts, "prompt_tokens_details": {"cached_tokens": said.cached_tokens, "audio_tokens": 0}}


class Chat(_OpenAi):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"

    def chunk(self, choices: list[Json], **more: object) -> Step:
        top = openai_top(self.ident, "chat.completion.chunk")
        return sse({**top, "choices": choices, **more}, spaced=True)

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        steps: list[Step] = []
        if turn.first:
            role = {"index": turn.index, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            steps.append(self.chunk([{**role, "finish_reason": None}], prompt_token_ids=None))
        kind, text, call = turn.output
        delta: Json = {"content": text}
        if kind == "call":
            function = {"name": text, "arguments": ""}
            delta = {"tool_calls": [{"id": f"call_{call}", "index": call, "type": "function", "function": function}]}
        elif kind == "arguments":
            delta = {"tool_calls": [{"index": call, "function": {"arguments": text}}]}
        elif kind == "reasoning":
            delta = {"reasoning": text}
        if turn.last and kind == "text" and text:
            steps.append(self._finish(turn.index, delta, said))
        elif text:
            open_choice = {"index": turn.index, "delta": delta, "logprobs": None, "token_ids": None}
            steps.append(self.chunk([{**open_choice, "finish_reason": None}]))
        return steps

    def _finish(self, index: int, delta: Json, said: Said) -> Step:
        nulls = {"logprobs": None, "token_ids": None, "stop_reason": None}
        return self.chunk([{"index": index, "delta": delta, "finish_reason": said.finish, **nulls}])

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        last = said.outputs[-1]
        separate = [] if last.kind == "text" and last.text else [self._finish(i, {}, said) for i in range(ask.choices)]
        return [*separate, self.chunk([], usage=self.usage(ask, said)), DONE, end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        calls = [
            {"id": f"call_{i}", "index": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(said.calls)
        ]
        message: Json = {"role": "assistant", "content": said.text or None, "reasoning": said.reasoning or None}
        message |= {"tool_calls": calls or None}
        ended = {"finish_reason": said.finish, "logprobs": None, "token_ids": None}
        choices = [{"index": i, "message": message, **ended} for i in range(ask.choices)]
        top = openai_top(self.request_number, "chat.completion")
        return page({**top, "choices": choices, "usage": self.usage(ask, said)})


class Text(_OpenAi):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"

    def chunk(self, choices: list[Json], usage: Json | None = None) -> Step:
        top = openai_top(self.request_number, "text_completion")
        return sse({**top, "choices": choices, "usage": usage}, spaced=True)

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        choice = {"text": turn.output.text, "index": turn.index, "logprobs": None}
        return [self.chunk([{**choice, "finish_reason": said.finish if turn.last else None}])]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        return [self.chunk([], self.usage(ask, said)), DONE, end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        logprobs = None if ask.stream else text_logprobs(said.pieces, ask.logprobs)
        ended = {"logprobs": logprobs, "finish_reason": said.finish}
        choices = [{"text": said.text, "index": i, **ended} for i in range(ask.choices)]
        top = openai_top(self.request_number, "text_completion")
        return page({**top, "choices": choices, "usage": self.usage(ask, said)})


class Generate(Voice):
    """``/generate``; ``streams`` makes it ``/generate_stream``."""

    think_tags = True
    streams = False

    def ask(self, body: Json) -> Ask:
        inputs, values = body.get("inputs"), as_object(body.get("parameters"))
        if not isinstance(inputs, str | list) or values is None:
            raise Refused(error_page(417, "'parameters'", "InternalServerError"))
        if wrong := misfit(values, PARAMETERS):
            raise Refused(error_page(417, f"{wrong} is of a wrong type", "InternalServerError"))
        check_sampling(values)
        n = values.get("n", 1)
        if values.get("best_of", n) != n or (self.streams and n != 1):
            raise refuse("n != best_of is not supported")
        return Ask(
            "text",
            "",
            stream=self.streams,
            usage=True,
            n=n,
            max_tokens=values.get("max_new_tokens"),
            stop=words(values.get("stop_sequences")),
            schema=_guided(values.get("guided_json")),
            turns=turns_of([{"role": "", "content": inputs if isinstance(inputs, str) else ""}]),
            sampling=sampling_of(values),
        )

    def head(self, ask: Ask) -> Head:
        return stream_head(("content-type", "text/event-stream; charset=utf-8"))

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        made = turn.at + 1
        ends = turn.last and said.finish == "length"
        return [self._token(said, 15000 + made, turn.output.text, made, "length" if ends else None)]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        if said.finish == "length":
            return [end()]
        return [self._token(said, 2, "", len(said.outputs) + 1, "stop"), end()]

    def _token(self, said: Said, ident: int, text: str, made: int, finish: str | None) -> Step:
        token = {"id": ident, "text": text, "logprob": -0.5, "special": False, "count_output_tokens": made}
        token |= {"prompt_tokens": said.prompt_tokens, "logprobs": None}
        ended = {"finished": finish is not None, "finish_reason": finish, "details": None, "input_usage": None}
        written = json.dumps({"token": token, "generated_text": None, **ended}, separators=(",", ":"))
        return Body(b"data:" + written.replace("/", "\\/").encode() + b"\n\n")

    def broken(self, ask: Ask) -> list[Step]:
        told = {"message": self.say.message, "type": "server_error", "code": "stream_error"}
        return [sse({"error": told}, spaced=True), end()]

    def failed(self, ask: Ask) -> Script:
        return error_page(417, self.say.message, "InternalServerError")

    def full(self, ask: Ask) -> Script:
        return error_page(429, self.say.message, "RateLimitError")

    def whole(self, ask: Ask, said: Said) -> Script:
        counts: Json = {"count_output_tokens": said.completion_tokens, "finish_reason": said.finish}
        counts["prompt_tokens"] = said.prompt_tokens
        if ask.n > 1:
            counts = {key: [value] * ask.n for key, value in counts.items()}
        return page(spaced_json({"generated_text": [said.text] * ask.n, **counts}), content_type="")


class GenerateStream(Generate):
    streams = True


def _guided(schema: Any) -> Json | None:
    return as_object(json.loads(schema) if isinstance(schema, str) else schema)


class LightllmDialect(Dialect):
    """In normal mode it lets requests wait; its 429 is that of ``pd_master``."""

    name = "lightllm"
    obeys_tool_choice = False
    streams_several_prompts = False
    tells_cached = True
    logprobs = False
    streams_text_logprobs = False
    embeds = False

    def endpoints(self) -> Mapping[str, Voice]:
        return {
            "/v1/chat/completions": Chat(self.say, self.load),
            "/v1/completions": Text(self.say, self.load),
            "/generate": Generate(self.say, self.load),
            "/generate_stream": GenerateStream(self.say, self.load),
        }

    def pages(self) -> Mapping[str, Script]:
        load = self.load
        model = {"id": OWN_MODEL, "object": "model", "created": CREATED_UNIX_S, "owned_by": "lightllm"}
        used = {"current_load": load.kv_usage_ratio, "logical_max_load": 0.55, "dynamic_max_load": 0.55}
        return {
            "/health": page({"message": "Ok"}),
            "/healthz": page({"message": "Ok"}),
            "/liveness": page({"status": "ok"}),
            "/readiness": page({"status": "ok"}),
            "/token_load": page(used),
            "/get_server_info": page({"running_max_req_size": load.slots, "max_req_total_len": load.context_tokens}),
            "/v1/models": page({"object": "list", "data": [{**model, "max_model_len": load.context_tokens}]}),
            "/metrics": page(self._metrics(), content_type="text/plain; version=0.0.4; charset=utf-8"),
        }

    def _metrics(self) -> str:
        labels = f'{{model_name="{OWN_MODEL}"}}'
        return (
            "# TYPE lightllm_queue_size gauge\n"
            f"lightllm_queue_size{labels} {float(self.load.waiting)}\n"
            "# TYPE lightllm_batch_current_size gauge\n"
            f"lightllm_batch_current_size{labels} {float(self.load.running)}\n"
            "# TYPE lightllm_num_running_reqs gauge\n"
            f"lightllm_num_running_reqs{labels} {float(self.load.running)}\n"
        )

    def lost(self, request: Request) -> Script:
        return page({"detail": "Not Found"}, 404)

    def unread(self, request: Request) -> Script:
        if not request.target.startswith("/v1/"):
            return error_page(400, "the body is not valid JSON")
        return page({"detail": [{"type": "json_invalid", "loc": ["body", 1], "msg": "JSON decode error"}]}, 422)
