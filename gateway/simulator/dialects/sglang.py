"""SGLang, release 0.5.23: ``reasoning_content`` always there, flat errors, and a full queue told inside a 200."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import BaseModel, Field

from gateway.simulator.bodies import CallRejected, CompletionBody, Ids, ModelBody, RefusalKind, TokenizeBody, parse
from gateway.simulator.calls import Rules
from gateway.simulator.dialects.native_wire import NativeWire
from gateway.simulator.dialects.openai_wire import OpenAiWire, embedded, model_list, read_openai, reader_of
from gateway.simulator.dialects.protocol import (
    Asked,
    Embeds,
    Generates,
    Page,
    Reply,
    Request,
    Route,
    State,
    StreamStart,
)
from gateway.simulator.dialects.sse import DONE, frame
from gateway.simulator.metrics_text import TEXT_TYPE, MetricsText
from gateway.simulator.output import Output
from gateway.simulator.text import FinishReason, Piece, pieces_of, token_id
from gateway.simulator.transcript import Fields

VERSION = "0.5.23+simulated"
_END_OF_TEXT = 2  # the token
_TYPES: dict[RefusalKind, tuple[int, str]] = {"overload": (503, "SERVICE_UNAVAILABLE")}


class SglangWire(OpenAiWire):
    """A chat or completion answer."""

    tells_abort = True

    def opening(self) -> Fields | None:
        return {"reasoning_content": None, "role": "assistant", "content": ""}

    def empty_delta(self) -> Fields:
        return {"reasoning_content": None}

    def merges(self, index: int, finish: FinishReason) -> bool:
        return self.kind == "completion"

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        match piece.channel:
            case "content":
                return {"reasoning_content": None, "content": piece.text}
            case "reasoning":
                return {"reasoning_content": piece.text}
            case "tool_name":
                return self._tool_delta(self._tool_call_id, {"name": piece.text, "arguments": ""})
            case "tool_arguments":
                return self._tool_delta(None, {"name": None, "arguments": piece.text})

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        logprobs = self.logprobs(index, pieces) if pieces else None
        end: Fields = {"logprobs": logprobs, "finish_reason": finish}
        return {"index": index} | payload | end | {"matched_stop": self._matched(index) if finish else None}

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        if self.kind == "completion":
            head = self.head()
            chunk: Fields = {"id": head["id"], "object": head["object"], "created": head["created"]}
            chunk |= {"choices": choices, "model": head["model"]}
        else:
            chunk = super().chunk(choices, index, finish)
        if index is None:
            return chunk
        if self.call.include_usage and self.call.continuous_usage:
            return chunk | {"usage": self.usage()}
        delta = cast("Fields", choices[0].get("delta", {}))
        return chunk | ({"usage": None} if self.kind == "completion" or "tool_calls" in delta else {})

    def usage(self) -> Fields:
        prompt, completion = self.call.prompt_tokens, self.said.completion_tokens
        usage: Fields = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
        usage |= {"prompt_tokens_details": None, "reasoning_tokens": self.said.reasoning_tokens}
        return usage | {"completion_tokens_details": None}

    def body(self) -> Fields:
        choices: list[Fields] = []
        for index, pieces in enumerate(self.said.pieces):
            end: Fields = {"logprobs": self.logprobs(index, pieces), "finish_reason": self.said.finish[index]}
            end |= {"matched_stop": self._matched(index)}
            if self.kind == "completion":
                choices.append({"index": index, "text": self.said.text(index, "content")} | end)
                continue
            message: Fields = {"role": "assistant", "content": self.content(index)}
            message |= {"reasoning_content": self.said.text(index, "reasoning") or None}
            message |= {"tool_calls": self.calls(index, self._tool_call_id) or None}
            choices.append({"index": index, "message": message} | end)
        return self.head() | {"choices": choices, "usage": self.usage(), "metadata": {"weight_version": "default"}}

    def _tool_delta(self, id: str | None, function: Fields) -> Fields:
        call: Fields = {"id": id, "index": 0, "type": "function", "function": function}
        return {"role": None, "content": None, "reasoning_content": None, "tool_calls": [call]}

    def _matched(self, index: int) -> str | int | None:
        if self.said.stopped_by_itself(index):
            return _END_OF_TEXT
        return self.call.answers[index].stop_reason if self.said.finish[index] == "stop" else None

    @property
    def _tool_call_id(self) -> str:
        return f"call_{self.hashed(24)}"


class SglangNativeWire(NativeWire):
    """An answer of /generate: every frame holds all of the text so far."""

    def frames(self, output: Output) -> list[bytes]:
        self.said.add(output)
        return [frame(self._body())]

    def end(self) -> list[bytes]:
        return [DONE]

    def reply(self) -> Reply:
        return Reply(200, self._body())

    def _body(self) -> Fields:
        pieces, reason = self.said.pieces[0], self.said.finish[0]
        finish: Fields | None = None
        if reason == "length":
            finish = {"type": "length", "length": len(pieces)}
        elif reason is not None:
            finish = {"type": reason}
            finish |= {"matched": self.answer.stop_reason or _END_OF_TEXT} if reason == "stop" else {}
        meta: Fields = {"id": self.id, "finish_reason": finish, "prompt_tokens": self.call.prompt_tokens}
        meta |= {"weight_version": "default", "total_retractions": 0, "completion_tokens": len(pieces)}
        meta |= {"cached_tokens": 0} | ({"e2e_latency": round(self.said.last_s, 6)} if finish else {})
        return {"text": self.text, "output_ids": [token_id(piece.text) for piece in pieces], "meta_info": meta}


class _StrictBody(ModelBody):
    """Where SGLang takes no null."""

    n: int = 1
    stream: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    parallel_tool_calls: bool = True


class _SamplingParams(BaseModel):
    max_new_tokens: int | None = 128
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    sampling_seed: int | None = None


class _GenerateBody(ModelBody):
    text: str | None = None
    input_ids: Ids | None = None
    sampling_params: _SamplingParams = Field(default_factory=_SamplingParams)
    stream: bool | None = None
    rid: str | None = None


class Sglang:
    """The dialect of SGLang."""

    rules = Rules(names="echoed", refuses_overflow=True, max_stops=None, goes_on="flagged")
    headers = (("server", "uvicorn"),)
    stream_headers = ()
    stream_start: StreamStart = "with_first_token"
    closes_streams = False
    has_queue_limit = True
    edges_s = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)

    def routes(self) -> Mapping[str, Route]:
        alive = Page(("GET",), lambda _, __: Reply(200, b""))
        info, model = Page(("GET",), self._server_info), Page(("GET",), self._model_info)
        return {
            "/v1/chat/completions": Generates(self._generate),
            "/v1/completions": Generates(self._generate),
            "/generate": Generates(self._generate_native),
            "/v1/embeddings": Embeds(lambda request, state: embedded(self.rules, request, state)),
            "/tokenize": Page(("POST",), self._tokenize),
            "/v1/tokenize": Page(("POST",), self._tokenize),
            "/v1/models": Page(("GET",), self._models),
            **dict.fromkeys(("/health", "/health_generate", "/ready", "/ping"), alive),
            **dict.fromkeys(("/server_info", "/get_server_info"), info),
            **dict.fromkeys(("/model_info", "/get_model_info"), model),
            "/v1/loads": Page(("GET",), self._loads),
            "/metrics": Page(("GET",), self._metrics),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        return Reply(405, {"detail": "Method Not Allowed"}) if known else Reply(404, {"detail": "Not Found"})

    def refusal(self, error: CallRejected, path: str) -> Reply:
        status, kind = _TYPES.get(error.kind, (400, "BadRequestError"))
        return Reply(status, _error_fields(str(error), status, kind))

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        if error.kind != "overload":
            return None
        status, kind = _TYPES[error.kind]
        fields = _error_fields(str(error), status, kind)
        if path == "/generate":
            fields = {"message": str(error), "type": "invalid_request_error", "code": status, "retryable": False}
        return Reply(200, frame({"error": fields}) + DONE, SglangWire.media_type)

    def _generate(self, request: Request, state: State) -> Asked:
        parse(_StrictBody, "application/json", request.body)
        kind, call = read_openai(self.rules, request, state)
        return SglangWire.asked(kind, call, request.random_id, request.received_unix_s)

    def _generate_native(self, request: Request, state: State) -> Asked:
        body = parse(_GenerateBody, "application/json", request.body)
        prompt = body.text if body.text is not None else body.input_ids
        if prompt is None:
            raise CallRejected("Either text, input_ids or input_embeds should be provided.")
        sampling = body.sampling_params
        asked = CompletionBody(prompt=prompt, stream=body.stream, max_tokens=sampling.max_new_tokens)
        asked.stop, asked.ignore_eos, asked.seed = sampling.stop, sampling.ignore_eos, sampling.sampling_seed
        call = reader_of(self.rules, state).completion(asked)
        return Asked(call, SglangNativeWire(call, body.rid or request.random_id, request.received_unix_s))

    def _tokenize(self, request: Request, state: State) -> Reply:
        body = parse(TokenizeBody, "application/json", request.body)
        tokens = [token_id(piece) for piece in pieces_of(body.prompt or "")]
        return Reply(200, {"tokens": tokens, "count": len(tokens), "max_model_len": state.settings.context_tokens})

    def _models(self, request: Request, state: State) -> Reply:
        return model_list(state, "sglang", root=state.model, parent=None, max_model_len=state.settings.context_tokens)

    def _model_info(self, request: Request, state: State) -> Reply:
        info: Fields = {"model_path": state.model, "tokenizer_path": state.model, "is_generation": True}
        return Reply(200, info | {"preferred_sampling_params": None, "weight_version": "default"})

    def _server_info(self, request: Request, state: State) -> Reply:
        info: Fields = {"model_path": state.model, "served_model_name": state.model, "version": VERSION}
        info |= {"context_length": state.settings.context_tokens, "max_queued_requests": state.settings.max_queue}
        info |= {"max_running_requests": state.settings.pace.slots, "max_total_num_tokens": state.kv_tokens}
        return Reply(200, info)

    def _loads(self, request: Request, state: State) -> Reply:
        load: Fields = {"dp_rank": 0, "num_running_reqs": state.running, "num_waiting_reqs": state.waiting}
        load |= {"num_waiting_uncached_tokens": 0, "num_used_tokens": state.cached_tokens}
        load |= {"num_total_tokens": state.promised_tokens, "max_total_num_tokens": state.kv_tokens}
        load |= {"max_running_requests": state.settings.pace.slots, "token_usage": round(state.kv_usage_ratio, 4)}
        load |= {"gen_throughput": 0.0, "cache_hit_rate": 0.0}
        load |= {"utilization": round(state.running / state.settings.pace.slots, 4)}
        head: Fields = {"timestamp": request.received_unix_s, "version": VERSION, "accelerator": "simulated"}
        return Reply(200, head | {"num_accelerators": 1, "loads": [load]})

    def _metrics(self, request: Request, state: State) -> Reply:
        counts, text = state.counts, MetricsText("sglang:", model_name=state.model, tp_rank="0")
        text.add("num_running_reqs", "gauge", "Requests that hold a slot.", state.running)
        text.add("num_queue_reqs", "gauge", "Requests in the queue.", state.waiting)
        text.add("token_usage", "gauge", "Share of the KV cache in use, 0 to 1.", state.kv_usage_ratio)
        text.add("num_used_tokens", "gauge", "Tokens in the KV cache.", state.cached_tokens)
        text.add("max_total_num_tokens", "gauge", "Room in the KV cache.", state.kv_tokens)
        text.add("cache_hit_rate", "gauge", "Of the prefix cache.", 0)
        text.add("prompt_tokens_total", "counter", "Prompt tokens processed.", counts.prompt_tokens)
        text.add("generation_tokens_total", "counter", "Tokens generated.", counts.generation_tokens)
        text.add("num_requests_total", "counter", "Requests finished.", counts.finished.total())
        text.add_histogram("time_to_first_token_seconds", "From arrival to the first token.", counts.first_token)
        text.add_histogram("queue_time_seconds", "From arrival to the slot.", counts.queue)
        return Reply(200, text.render(), TEXT_TYPE)


def _error_fields(message: str, status: int, kind: str) -> Fields:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}
