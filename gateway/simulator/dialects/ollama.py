"""Ollama 0.33, the server: model names with tags, both APIs, its answers to what is no generation."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Literal

import orjson
from pydantic import BaseModel, Field, JsonValue

from gateway.simulator.bodies import (
    CallRejected,
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    Message,
    ModelBody,
    RefusalKind,
    parse,
    validated,
)
from gateway.simulator.calls import Rules
from gateway.simulator.dialects.ollama_wire import OllamaChatWire, OllamaGenerateWire, OllamaOpenAiWire, timestamp
from gateway.simulator.dialects.openai_wire import embedding_entries, reader_of
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
    Vectors,
)
from gateway.simulator.embedding import embed
from gateway.simulator.transcript import Fields

VERSION = "0.33.0-simulated"
_JSON = "application/json; charset=utf-8"
_STATUSES: dict[RefusalKind, int] = {"unknown_model": 404, "overload": 503}
_KINDS = {400: "invalid_request_error", 404: "not_found_error"}
_IGNORED = ("max_completion_tokens", "n", "logit_bias", "best_of")
_SIZE_BYTES = 522_653_767


class _Options(BaseModel):
    num_predict: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None


class _NativeBody(ModelBody):
    stream: bool | None = None
    format: Literal["json", ""] | dict[str, JsonValue] | None = None
    options: _Options = Field(default_factory=_Options)
    think: bool | str | None = None


class _Call(BaseModel):
    name: str
    arguments: JsonValue = None


class _ToolCall(BaseModel):
    function: _Call


class _NativeMessage(BaseModel):
    role: str
    content: str = ""
    images: list[str] | None = None
    tool_calls: list[_ToolCall] | None = None


class _ChatBody(_NativeBody):
    messages: list[_NativeMessage] = Field(default_factory=list[_NativeMessage])
    tools: list[dict[str, JsonValue]] | None = None


class _GenerateBody(_NativeBody):
    prompt: str = ""
    system: str = ""
    raw: bool = False


class _EmbedBody(ModelBody):
    input: str | list[str]
    dimensions: int | None = Field(default=None, ge=1, le=4096)


class _OldEmbedBody(ModelBody):
    prompt: str = ""


class _NamedBody(ModelBody):
    name: str | None = None


class Ollama:
    """The dialect of Ollama."""

    rules = Rules(
        completion_tokens=None,
        clamps=True,
        truncates=True,
        max_stops=None,
        checks_ranges=False,
        counts_choices=False,
        named_finish="tool_calls",
    )
    headers = ()
    stream_headers = ()
    stream_start: StreamStart = "with_first_token"
    closes_streams = False
    has_queue_limit = True
    """Real ones refuse only while a model is being loaded."""
    edges_s = ()

    def routes(self) -> Mapping[str, Route]:
        running = Page(("GET", "HEAD"), lambda _, __: Reply(200, b"Ollama is running", "text/plain; charset=utf-8"))
        return {
            "/": running,
            "/api/chat": Generates(self._chat),
            "/api/generate": Generates(self._generate),
            "/api/embed": Embeds(self._embed),
            "/api/embeddings": Embeds(self._embed_old),
            "/api/version": Page(("GET", "HEAD"), lambda _, __: _reply(200, {"version": VERSION})),
            "/api/tags": Page(("GET", "HEAD"), self._tags),
            "/api/ps": Page(("GET",), self._loaded),
            "/api/show": Page(("POST",), self._show),
            "/v1/chat/completions": Generates(self._openai),
            "/v1/completions": Generates(self._openai),
            "/v1/embeddings": Embeds(self._embed_openai),
            "/v1/models": Page(("GET",), self._models),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        if known:
            return Reply(405, b"405 method not allowed", "text/plain")
        return Reply(404, b"404 page not found", "text/plain")

    def refusal(self, error: CallRejected, path: str) -> Reply:
        status = _STATUSES.get(error.kind, 400)
        message = str(error)
        if error.kind == "overload":
            message = "server busy, please try again.  maximum pending requests exceeded"
        if path.startswith("/v1/"):
            kind = _KINDS.get(status, "api_error")
            return _reply(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})
        return _reply(status, {"error": message})

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        return None

    def _chat(self, request: Request, state: State) -> Asked | Reply:
        body = parse(_ChatBody, "application/json", request.body)
        messages = [_message(message) for message in body.messages]
        asked = validated(ChatBody, _common(body, state) | {"messages": messages, "tools": body.tools or None})
        if not asked.messages:
            loaded: Fields = {"model": body.model, "created_at": timestamp(request.received_unix_s, 0.0)}
            message: Fields = {"message": {"role": "assistant", "content": ""}}
            return _reply(200, loaded | message | {"done": True, "done_reason": "load"})
        call = reader_of(self.rules, state).chat(asked)
        return Asked(call, OllamaChatWire(call, body.model or "", request.received_unix_s))

    def _generate(self, request: Request, state: State) -> Asked | Reply:
        body = parse(_GenerateBody, "application/json", request.body)
        common, reader = _common(body, state), reader_of(self.rules, state)
        if not body.prompt:
            loaded: Fields = {"model": body.model, "created_at": timestamp(request.received_unix_s, 0.0)}
            return _reply(200, loaded | {"response": "", "done": True, "done_reason": "load"})
        if body.raw:
            call = reader.completion(validated(CompletionBody, common | {"prompt": body.prompt}))
        else:
            messages = [Message(role="system", content=body.system)] if body.system else []
            messages.append(Message(role="user", content=body.prompt))
            call = reader.chat(validated(ChatBody, common | {"messages": messages}))
        return Asked(call, OllamaGenerateWire(call, body.model or "", request.received_unix_s))

    def _openai(self, request: Request, state: State) -> Asked:
        chat = request.path.endswith("/chat/completions")
        kind: type[ChatBody] | type[CompletionBody] = ChatBody if chat else CompletionBody
        parse(kind, "application/json", request.body)
        fields: dict[str, JsonValue] = orjson.loads(request.body)
        given = fields.get("model")
        fields = {name: value for name, value in fields.items() if name not in _IGNORED}
        if fields.get("tool_choice") == "none":
            del fields["tool_choice"]
        fields["model"] = _served(given if isinstance(given, str) else None, state)
        reader = reader_of(self.rules, state)
        id, shown = int(request.random_id, 16) % 999, given if isinstance(given, str) else state.model
        if chat:
            call = reader.chat(validated(ChatBody, fields))
            wire = OllamaOpenAiWire("chat", call, f"chatcmpl-{id}", request.received_unix_s)
        else:
            asked = validated(CompletionBody, fields)
            if not isinstance(asked.prompt, str):
                raise CallRejected("invalid prompt: only a string is supported", "prompt", "shape")
            call = reader.completion(asked)
            wire = OllamaOpenAiWire("completion", call, f"cmpl-{id}", request.received_unix_s)
        wire.model = shown
        return Asked(call, wire)

    def _embed(self, request: Request, state: State) -> Vectors:
        body = parse(_EmbedBody, "application/json", request.body)
        asked = EmbeddingBody(model=_served(body.model, state), input=body.input, dimensions=body.dimensions)
        call = reader_of(self.rules, state).embedding(asked)
        vectors = [embed(item.text, call.dimensions) for item in call.inputs]
        tokens = sum(item.tokens for item in call.inputs)
        answer: Fields = {"model": body.model, "embeddings": vectors, "prompt_eval_count": tokens}
        return Vectors(call, _reply(200, answer))

    def _embed_old(self, request: Request, state: State) -> Vectors:
        body = parse(_OldEmbedBody, "application/json", request.body)
        asked = EmbeddingBody(model=_served(body.model, state), input=body.prompt)
        call = reader_of(self.rules, state).embedding(asked)
        return Vectors(call, _reply(200, {"embedding": embed(body.prompt, call.dimensions)}))

    def _embed_openai(self, request: Request, state: State) -> Vectors:
        body = parse(EmbeddingBody, "application/json", request.body)
        shown, body.model = body.model, _served(body.model, state)
        call = reader_of(self.rules, state).embedding(body)
        tokens = sum(item.tokens for item in call.inputs)
        answer: Fields = {"object": "list", "data": embedding_entries(call), "model": shown}
        return Vectors(call, _reply(200, answer | {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}))

    def _tags(self, request: Request, state: State) -> Reply:
        changed: Fields = {"modified_at": timestamp(state.started_unix_s, 0.0)}
        return _reply(200, {"models": [_entry(name) | changed for name in state.settings.models]})

    def _loaded(self, request: Request, state: State) -> Reply:
        more: Fields = {"expires_at": "2318-01-01T00:00:00Z", "size_vram": _SIZE_BYTES}
        more |= {"context_length": state.settings.context_tokens}
        return _reply(200, {"models": [_entry(name) | more for name in state.settings.models]})

    def _show(self, request: Request, state: State) -> Reply:
        body = parse(_NamedBody, "application/json", request.body)
        reader_of(self.rules, state).model(_served(body.model or body.name, state))
        info: Fields = {"general.architecture": "simulated", "simulated.context_length": state.settings.context_tokens}
        more: Fields = {"template": "", "parameters": "", "details": _DETAILS, "model_info": info}
        return _reply(200, more | {"capabilities": ["completion", "tools", "thinking", "embedding"]})

    def _models(self, request: Request, state: State) -> Reply:
        rest: Fields = {"object": "model", "created": state.started_unix_s, "owned_by": "library"}
        return _reply(200, {"object": "list", "data": [{"id": _tagged(n)} | rest for n in state.settings.models]})


_DETAILS: Fields = {
    "parent_model": "",
    "format": "gguf",
    "family": "simulated",
    "families": ["simulated"],
    "parameter_size": "1B",
    "quantization_level": "Q4_K_M",
}


def _reply(status: int, body: Fields) -> Reply:
    return Reply(status, body, _JSON)


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _served(named: str | None, state: State) -> str:
    """Returns the name as it is configured; the tag ``latest`` may be left out on either side."""
    if not named:
        raise CallRejected("model is required", "model")
    served = next((name for name in state.settings.models if _tagged(name) == _tagged(named)), None)
    if served is None:
        raise CallRejected(f"model '{named}' not found", "model", "unknown_model")
    return served


def _entry(name: str) -> Fields:
    shown = _tagged(name)
    digest = sha256(shown.encode()).hexdigest()
    return {"name": shown, "model": shown, "size": _SIZE_BYTES, "digest": digest, "details": _DETAILS}


def _common(body: _NativeBody, state: State) -> dict[str, object]:
    """Returns what every native generation says, as OpenAI's fields."""
    common: dict[str, object] = {"model": _served(body.model, state), "stream": body.stream is not False}
    common |= {"max_tokens": body.options.num_predict, "stop": body.options.stop, "seed": body.options.seed}
    if isinstance(body.format, dict):
        common["response_format"] = {"type": "json_schema", "json_schema": {"schema": body.format}}
    elif body.format == "json":
        common["response_format"] = {"type": "json_object"}
    if body.think:
        common["reasoning_effort"] = body.think if isinstance(body.think, str) else "medium"
    return common


def _message(message: _NativeMessage) -> dict[str, object]:
    text: dict[str, object] = {"type": "text", "text": message.content}
    image: dict[str, object] = {"type": "image_url"}
    parts = [text, *(image for _ in message.images or ())]
    calls = [call.model_dump(mode="json") for call in message.tool_calls or ()]
    return {"role": message.role, "content": parts, "tool_calls": calls or None}
