"""LightLLM after 1.2.0: JSON with spaces, usage always; its own streams write ``data:`` without a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import orjson
from pydantic import BaseModel, JsonValue

from gateway.simulator.bodies import CallRejected, CompletionBody, Ids, ModelBody, RefusalKind, parse
from gateway.simulator.calls import Rules
from gateway.simulator.dialects.native_wire import NativeWire
from gateway.simulator.dialects.openai_wire import OpenAiWire, model_list, read_openai, reader_of
from gateway.simulator.dialects.protocol import Asked, Generates, Page, Reply, Request, Route, State, StreamStart
from gateway.simulator.dialects.sse import spaced
from gateway.simulator.metrics_text import TEXT_TYPE, MetricsText
from gateway.simulator.output import Output
from gateway.simulator.text import FinishReason, Piece, count_tokens, token_id
from gateway.simulator.transcript import Fields, logprob

_NATIVE = ("/generate", "/generate_stream", "/")
_TYPES: dict[RefusalKind, tuple[int, str]] = {"overload": (429, "RateLimitError")}
_NO_NULLS = ("temperature", "top_p", "top_k", "n", "presence_penalty", "frequency_penalty")
_CRASHED = Reply(500, b"Internal Server Error", "text/plain; charset=utf-8")
_ABORTED: Fields = {
    "error": {
        "message": "1 validation error: finish_reason: Input should be 'stop', 'length' or 'tool_calls'",
        "type": "invalid_request_error",
    }
}


class LightllmWire(OpenAiWire):
    """A chat or completion answer."""

    def merges(self, index: int, finish: FinishReason) -> bool:
        return not self.said.text(index, "tool_name")

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        match piece.channel:
            case "content":
                return {"content": piece.text}
            case "reasoning":
                return {"reasoning": piece.text}
            case "tool_name":
                head: Fields = {"id": self._tool_call_id, "index": 0, "type": "function"}
                return {"tool_calls": [head | {"function": {"name": piece.text, "arguments": ""}}]}
            case "tool_arguments":
                return {"tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]}

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        if self.kind == "completion":
            return payload | {"index": index, "logprobs": None, "finish_reason": finish}
        choice: Fields = {"index": index} | payload
        if payload["delta"] == self.opening():
            return choice | {"logprobs": None, "finish_reason": None}
        if finish:
            return choice | {"finish_reason": finish, "logprobs": None, "token_ids": None, "stop_reason": None}
        return choice | {"logprobs": None, "token_ids": None, "finish_reason": None}

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        chunk = super().chunk(choices, index, finish)
        if self.kind == "completion":
            return chunk | {"usage": None}
        opening = bool(choices) and choices[0]["delta"] == self.opening()
        return chunk | ({"prompt_token_ids": None} if opening else {})

    def sends_usage(self) -> bool:
        return True

    def usage(self) -> Fields:
        return super().usage() | {"prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}}

    def encode(self, chunk: Fields) -> bytes:
        return b"data: " + spaced(chunk) + b"\n\n"

    def broken(self) -> bytes:
        return self.encode(_ABORTED)

    def broken_reply(self) -> Reply:
        return _CRASHED

    def body(self) -> Fields:
        choices: list[Fields] = []
        for index, finish in enumerate(self.said.finish):
            if self.kind == "completion":
                text: Fields = {"text": self.said.text(index, "content"), "index": index}
                choices.append(text | {"logprobs": None, "finish_reason": finish})
                continue
            message: Fields = {"role": "assistant", "content": self.content(index)}
            message |= {"reasoning": self.said.text(index, "reasoning") or None}
            message |= {"tool_calls": self.calls(index, self._tool_call_id) or None}
            choices.append({"index": index, "message": message, "logprobs": None, "finish_reason": finish})
        return self.head() | {"choices": choices, "usage": self.usage()}

    @property
    def _tool_call_id(self) -> str:
        return f"call_{self.hashed(24)}"


class LightllmNativeWire(NativeWire):
    """An answer of /generate or /generate_stream."""

    def frames(self, output: Output) -> list[bytes]:
        self.said.add(output)
        if output.piece is None:
            return [b"data: " + spaced(_ABORTED) + b"\n\n"]
        text, count = output.piece.text, self.said.completion_tokens
        token: Fields = {"id": token_id(text), "text": text, "logprob": logprob(text), "special": False}
        token |= {"count_output_tokens": count, "prompt_tokens": self.call.prompt_tokens, "logprobs": None}
        finish = output.finish_reason
        body: Fields = {"token": token, "generated_text": None, "finished": finish is not None, "finish_reason": finish}
        return [b"data:" + orjson.dumps(body | {"details": None, "input_usage": None}) + b"\n\n"]

    def reply(self) -> Reply:
        finish = self.said.finish[0]
        body: Fields = {"generated_text": [self.text], "count_output_tokens": self.said.completion_tokens}
        body |= {"finish_reason": finish, "prompt_tokens": self.call.prompt_tokens}
        return Reply(200, orjson.dumps(body), content_type="")


class _StrictBody(ModelBody):
    """Where LightLLM takes less than OpenAI."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: JsonValue = None
    reasoning_effort: Literal["low", "medium", "high"] | None = None


class _Parameters(BaseModel):
    max_new_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_sequences: str | list[str] | None = None
    seed: int | None = None


class _GenerateBody(ModelBody):
    inputs: str | Ids
    parameters: _Parameters
    stream: bool | None = None


class _TokensBody(ModelBody):
    text: str


class Lightllm:
    """The dialect of LightLLM."""

    rules = Rules(names="echoed", completion_tokens=None, clamps=True, max_stops=10, named_finish="tool_calls")
    headers = (("server", "hypercorn-h11"),)
    stream_headers = ()
    stream_start: StreamStart = "at_once"
    closes_streams = False
    has_queue_limit = True
    """Only the master of a disaggregated deployment has one."""
    edges_s = tuple(0.001 * 1.5**exponent for exponent in range(35))

    def routes(self) -> Mapping[str, Route]:
        healthy = Page(("GET", "HEAD"), lambda _, __: Reply(200, {"message": "Ok"}))
        always = Page(("GET", "POST"), lambda _, __: Reply(200, {"status": "ok"}))
        return {
            "/v1/chat/completions": Generates(self._generate),
            "/v1/completions": Generates(self._generate),
            **dict.fromkeys(_NATIVE, Generates(self._generate_native)),
            "/tokens": Page(("POST",), self._tokens),
            "/v1/models": Page(("GET",), self._models),
            **dict.fromkeys(("/health", "/healthz"), healthy),
            **dict.fromkeys(("/liveness", "/readiness"), always),
            "/token_load": Page(("GET",), self._token_load),
            "/get_server_info": Page(("GET", "POST"), self._server_info),
            "/get_model_name": Page(("GET", "POST"), lambda _, state: Reply(200, {"model_name": state.model})),
            "/metrics": Page(("GET",), self._metrics),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        return Reply(405, {"detail": "Method Not Allowed"}) if known else Reply(404, {"detail": "Not Found"})

    def refusal(self, error: CallRejected, path: str) -> Reply:
        if error.kind in ("json", "shape") and path not in _NATIVE:
            where = (error.param or "body").split(".")
            return Reply(422, {"detail": [{"type": "value_error", "loc": where, "msg": str(error)}]})
        status, kind = _TYPES.get(error.kind, (400, "BadRequestError"))
        if error.kind == "shape":
            status = 417
        return Reply(status, {"error": {"message": str(error), "type": kind, "param": None, "code": status}})

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        if error.kind != "too_long":
            return None
        said = spaced({"error": {"message": str(error), "type": "invalid_request_error"}})
        return Reply(200, b"data: " + said + b"\n\n", LightllmWire.media_type)

    def _generate(self, request: Request, state: State) -> Asked | Reply:
        strict = parse(_StrictBody, "application/json", request.body)
        if any(name in strict.model_fields_set and getattr(strict, name) is None for name in _NO_NULLS):
            return _CRASHED
        if strict.logit_bias is not None:
            raise CallRejected("The logit_bias parameter is not currently supported", "logit_bias")
        if min(strict.presence_penalty or 0.0, strict.frequency_penalty or 0.0) < 0:
            raise CallRejected("presence_penalty and frequency_penalty must be >= 0.0")
        kind, call = read_openai(self.rules, request, state)
        if call.stream and len(call.prompts) > 1:
            raise CallRejected("stream is not supported for several prompts", "prompt")
        number = str(state.counts.requests)
        id = f"chatcmpl-{request.random_id}" if kind == "chat" and call.stream else number
        return LightllmWire.asked(kind, call, id, request.received_unix_s)

    def _generate_native(self, request: Request, state: State) -> Asked:
        body = parse(_GenerateBody, "application/json", request.body)
        wanted = body.parameters
        stream = request.path == "/generate_stream" or (request.path == "/" and bool(body.stream))
        asked = CompletionBody(prompt=body.inputs, stream=stream, max_tokens=wanted.max_new_tokens)
        asked.stop, asked.ignore_eos, asked.seed = wanted.stop_sequences, wanted.ignore_eos, wanted.seed
        call = reader_of(self.rules, state).completion(asked)
        return Asked(call, LightllmNativeWire(call, request.random_id, request.received_unix_s))

    def _tokens(self, request: Request, state: State) -> Reply:
        return Reply(200, {"ntokens": count_tokens(parse(_TokensBody, "application/json", request.body).text)})

    def _models(self, request: Request, state: State) -> Reply:
        return model_list(state, "lightllm", max_model_len=state.settings.context_tokens)

    def _token_load(self, request: Request, state: State) -> Reply:
        most = min(1.0, state.promised_tokens / state.kv_tokens)
        load: Fields = {"current_load": state.kv_usage_ratio, "logical_max_load": most, "dynamic_max_load": most}
        return Reply(200, load)

    def _server_info(self, request: Request, state: State) -> Reply:
        info: Fields = {"run_mode": "normal", "model_name": state.model, "max_total_token_num": state.kv_tokens}
        info |= {"running_max_req_size": state.settings.pace.slots, "max_req_total_len": state.settings.context_tokens}
        return Reply(200, info)

    def _metrics(self, request: Request, state: State) -> Reply:
        counts, text = state.counts, MetricsText("lightllm_", model_name=state.model)
        text.add("queue_size", "gauge", "Requests in the queue.", state.waiting)
        text.add("batch_current_size", "gauge", "Requests that hold a slot.", state.running)
        text.add("num_running_reqs", "gauge", "Requests that hold a slot.", state.running)
        text.add("batch_pause_size", "gauge", "Requests paused for memory.", 0)
        text.add("batch_current_max_tokens", "gauge", "Tokens the batch may reach.", state.promised_tokens)
        text.add("cache_hit_rate", "gauge", "Of the prefix cache.", 0)
        text.add("request_count_total", "counter", "Requests received.", counts.requests)
        text.add("request_success_total", "counter", "Requests finished.", counts.finished.total())
        text.add("request_failure_total", "counter", "Requests refused.", counts.refused)
        text.add("prompt_tokens_total", "counter", "Prompt tokens processed.", counts.prompt_tokens)
        text.add("generation_tokens_total", "counter", "Tokens generated.", counts.generation_tokens)
        text.add_histogram("request_first_token_duration", "From arrival to the first token.", counts.first_token)
        text.add_histogram("request_inference_duration", "From arrival to the last token.", counts.duration)
        text.add_histogram("request_mean_time_per_token_duration", "Mean time of a token.", counts.per_token)
        return Reply(200, text.render(), TEXT_TYPE)
