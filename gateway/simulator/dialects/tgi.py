"""Text Generation Inference 3.3, the server: strict bodies, and a 200 to a stream before anything is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import orjson
from pydantic import BaseModel, Field, JsonValue

from gateway.simulator.bodies import (
    CallRejected,
    ChatBody,
    CompletionBody,
    ModelBody,
    RefusalKind,
    StreamOptions,
    parse,
    validated,
)
from gateway.simulator.calls import Rules
from gateway.simulator.dialects.openai_wire import reader_of
from gateway.simulator.dialects.protocol import (
    Asked,
    Generates,
    Page,
    Reply,
    Request,
    Route,
    State,
    StreamStart,
)
from gateway.simulator.dialects.sse import DONE, frame
from gateway.simulator.dialects.tgi_wire import VERSION, TgiNativeWire, TgiWire, error_frame, failure
from gateway.simulator.metrics_text import TEXT_TYPE, MetricsText
from gateway.simulator.text import pieces_of, token_id
from gateway.simulator.transcript import Fields

_MAX_PROMPTS = 4
_NATIVE = ("/generate", "/generate_stream", "/")
_PLAIN = "text/plain; charset=utf-8"
_TEXT_STATUSES: dict[RefusalKind, int] = {"json": 400, "shape": 422, "media_type": 415}


class _Grammar(BaseModel):
    type: Literal["json", "json_object", "json_schema", "regex"]
    value: JsonValue

    @property
    def as_openai(self) -> JsonValue:
        """The same in OpenAI's shape, so that the common reader takes it."""
        value = self.value
        if self.type == "json_schema" and isinstance(value, dict) and "schema" in value:
            value = value["schema"]
        return {"type": "json_schema", "json_schema": {"schema": value}}


class _StrictBody(ModelBody):
    """Where TGI takes less than OpenAI: nothing here may be null but what says so, and ``stop`` is a list."""

    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    stop: list[str] | None = None
    logit_bias: list[float] | None = None
    seed: int | None = Field(default=None, ge=0)
    response_format: _Grammar | None = None
    top_p: float | None = None
    tools: list[dict[str, JsonValue]] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None


class _Parameters(BaseModel):
    max_new_tokens: int | None = None
    stop: list[str] = Field(default_factory=list)
    seed: int | None = Field(default=None, ge=0)
    temperature: float | None = None
    top_p: float | None = None
    details: bool = False
    return_full_text: bool | None = None
    grammar: _Grammar | None = None


class _GenerateBody(ModelBody):
    inputs: str
    parameters: _Parameters = Field(default_factory=_Parameters)
    stream: bool = False


class Tgi:
    """The dialect of TGI. It serves one model; every other name is taken for an adapter's and given back."""

    rules = Rules(
        names="echoed",
        completion_tokens=None,
        refuses_overflow=True,
        checks_ranges=False,
        counts_choices=False,
        named_finish="tool_calls",
        thinks=False,
        goes_on="always",
    )
    headers = ()
    stream_headers = (
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
        ("x-compute-type", "simulated"),
    )
    stream_start: StreamStart = "at_once"
    closes_streams = False
    has_queue_limit = True
    edges_s = tuple(0.0001 * 1.5**exponent for exponent in range(1, 36))

    def routes(self) -> Mapping[str, Route]:
        healthy, info = Page(("GET",), lambda _, __: Reply(200, b"")), Page(("GET",), self._info)
        return {
            "/v1/chat/completions": Generates(self._generate),
            "/v1/completions": Generates(self._generate),
            "/generate": Generates(self._generate_native),
            "/generate_stream": Generates(self._generate_native),
            "POST /": Generates(self._generate_native),
            **dict.fromkeys(("/info", "/"), info),
            **dict.fromkeys(("/health", "/ping"), healthy),
            "/tokenize": Page(("POST",), self._tokenize),
            "/v1/models": Page(("GET",), self._models),
            "/metrics": Page(("GET",), self._metrics),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        return Reply(405 if known else 404, b"")

    def refusal(self, error: CallRejected, path: str) -> Reply:
        if error.kind in _TEXT_STATUSES:
            message = f"Failed to deserialize the JSON body into the target type: {error}"
            return Reply(_TEXT_STATUSES[error.kind], message.encode(), _PLAIN)
        message, kind = _spoken(error)
        return failure(429 if kind == "overloaded" else 422, message, kind)

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        if error.kind in _TEXT_STATUSES:
            return None
        message, kind = _spoken(error)
        if path in _NATIVE:
            return Reply(200, frame({"error": message, "error_type": kind}), TgiWire.media_type)
        return Reply(200, error_frame(message) + DONE, TgiWire.media_type)

    def _generate(self, request: Request, state: State) -> Asked:
        strict = parse(_StrictBody, request.content_type, request.body)
        fields: dict[str, JsonValue] = orjson.loads(request.body)
        if fields.get("model") == "tgi":
            del fields["model"]
        if strict.response_format is not None:
            if strict.tools:
                raise CallRejected("Grammar and tools are mutually exclusive", "response_format")
            fields["response_format"] = strict.response_format.as_openai
        if isinstance(strict.tool_choice, str) and strict.tool_choice not in ("auto", "none", "required"):
            fields["tool_choice"] = {"function": {"name": strict.tool_choice}}
        if "max_tokens" in fields and "max_completion_tokens" in fields:
            raise CallRejected("duplicate field `max_tokens`", "max_tokens", "shape")
        if strict.top_p is not None:
            _check_top_p(strict.top_p, streaming=strict.stream)
        reader = reader_of(self.rules, state)
        if request.path == "/v1/chat/completions":
            call = reader.chat(validated(ChatBody, fields))
            return TgiWire.asked("chat", call, "", request.received_unix_s)
        asked = validated(CompletionBody, fields)
        texts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
        if not all(isinstance(text, str) for text in texts):
            raise CallRejected("invalid type: integer, expected a string", "prompt", "shape")
        if len(texts) > _MAX_PROMPTS:
            raise CallRejected(f"Maximum batch size exceeded: {len(texts)} > {_MAX_PROMPTS}", "prompt")
        return TgiWire.asked("completion", reader.completion(asked), "", request.received_unix_s)

    def _generate_native(self, request: Request, state: State) -> Asked:
        body = parse(_GenerateBody, request.content_type, request.body)
        wanted = body.parameters
        stream = request.path == "/generate_stream" or (request.path == "/" and body.stream)
        if wanted.top_p is not None:
            _check_top_p(wanted.top_p, streaming=stream)
        if wanted.temperature is not None and wanted.temperature <= 0:
            raise CallRejected("`temperature` must be strictly positive", "temperature", streaming=stream)
        asked = CompletionBody(prompt=body.inputs, stream=stream, max_tokens=wanted.max_new_tokens)
        asked.stop, asked.seed = wanted.stop, wanted.seed
        if wanted.grammar is not None and wanted.grammar.type != "regex":
            asked = validated(CompletionBody, asked.model_dump() | {"response_format": wanted.grammar.as_openai})
        wire = TgiNativeWire(reader_of(self.rules, state).completion(asked), "", request.received_unix_s)
        wire.details, wire.in_list = wanted.details, request.path == "/"
        wire.prefix = body.inputs if wanted.return_full_text else ""
        return Asked(wire.call, wire)

    def _tokenize(self, request: Request, state: State) -> Reply:
        text, at = parse(_GenerateBody, request.content_type, request.body).inputs, 0
        tokens: list[Fields] = []
        for piece in pieces_of(text):
            tokens.append({"id": token_id(piece), "text": piece, "start": at, "stop": at + len(piece)})
            at += len(piece)
        return Reply(200, tokens)

    def _info(self, request: Request, state: State) -> Reply:
        settings = state.settings
        info: Fields = {"model_id": state.model, "model_sha": None, "model_pipeline_tag": "text-generation"}
        info |= {"max_concurrent_requests": settings.pace.slots + (settings.max_queue or 0), "max_best_of": 2}
        info |= {"max_stop_sequences": 4, "max_input_tokens": settings.context_tokens - 1}
        info |= {"max_total_tokens": settings.context_tokens, "validation_workers": 2}
        info |= {"max_client_batch_size": _MAX_PROMPTS, "router": "text-generation-router", "version": VERSION}
        return Reply(200, info | {"sha": None, "docker_label": None})

    def _models(self, request: Request, state: State) -> Reply:
        entry: Fields = {"id": state.model, "object": "model", "created": 0, "owned_by": state.model}
        return Reply(200, {"object": "list", "data": [entry]})

    def _metrics(self, request: Request, state: State) -> Reply:
        counts, text = state.counts, MetricsText("tgi_")
        text.add("queue_size", "gauge", "Requests in the queue.", state.waiting)
        text.add("batch_current_size", "gauge", "Requests that hold a slot.", state.running)
        text.add("batch_current_max_tokens", "gauge", "Tokens the batch may grow to.", state.promised_tokens)
        text.add("batch_max_total_tokens", "gauge", "Tokens a batch may have.", state.kv_tokens)
        text.add("request_count", "counter", "Requests received.", counts.requests)
        text.add("request_success", "counter", "Requests finished.", counts.finished.total())
        refused = [({"err": "validation"}, float(counts.refused - counts.overloaded))]
        refused.append(({"err": "overloaded"}, float(counts.overloaded)))
        text.add_labelled("request_failure", "counter", "Requests refused.", refused)
        text.add_histogram("request_duration", "From arrival to the last token.", counts.duration)
        text.add_histogram("request_queue_duration", "From arrival to the slot.", counts.queue)
        text.add_histogram("request_inference_duration", "From the slot to the last token.", counts.inference)
        text.add_histogram("request_mean_time_per_token_duration", "Mean time of a token.", counts.per_token)
        return Reply(200, text.render(), TEXT_TYPE)


def _check_top_p(top_p: float, *, streaming: bool) -> None:
    if not 0 < top_p < 1:
        raise CallRejected("`top_p` must be > 0.0 and < 1.0", "top_p", streaming=streaming)


def _spoken(error: CallRejected) -> tuple[str, str]:
    if error.kind == "overload":
        return "Model is overloaded", "overloaded"
    return f"Input validation error: {error}", "validation"
