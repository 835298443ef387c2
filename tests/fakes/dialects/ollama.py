"""Ollama 0.33: NDJSON natively, whole tool calls, the head with the first token, and failures that /v1 swallows."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping

from tests.fakes.dialects.answer import Ask, Json, Kind, Said
from tests.fakes.dialects.checks import (
    as_list,
    misfit,
    openai_ask,
    openai_embed,
    sampling_of,
    text_of,
    tool_names,
    words,
)
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
    token_logprob,
    vectors,
)
from tests.fakes.scripted import Body, Head, Request, Script, Step, end, to_json

JSON = "application/json; charset=utf-8"
AT = "2026-08-21T10:00:00.123456789Z"
FINGERPRINT = "fp_ollama"
EFFORTS = ("none", "minimal", "low", "medium", "high", "max", "xhigh", "ultra")

OPTIONS: Mapping[str, str] = {
    "num_ctx": "int",
    "num_predict": "int",
    "num_keep": "int",
    "temperature": "number",
    "top_k": "int",
    "top_p": "number",
    "min_p": "number",
    "typical_p": "number",
    "repeat_penalty": "number",
    "repeat_last_n": "int",
    "presence_penalty": "number",
    "frequency_penalty": "number",
    "seed": "int",
    "stop": "strs",
}
NATIVE: Mapping[str, str] = {
    "model": "str",
    "messages": "list null",
    "prompt": "str null",
    "stream": "bool null",
    "format": "str object null",
    "options": "object null",
    "think": "bool str null",
    "tools": "list null",
    "keep_alive": "str number null",
    "logprobs": "bool null",
    "top_logprobs": "int null",
    "raw": "bool null",
    "system": "str null",
}
OPENAI: Mapping[str, str] = {
    "model": "str",
    "stream": "bool null",
    "stream_options": "object null",
    "max_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "presence_penalty": "number null",
    "frequency_penalty": "number null",
    "seed": "int null",
    "stop": "str strs null",
}
CHAT_FIELDS = {
    **OPENAI,
    "messages": "list",
    "response_format": "object null",
    "tools": "list null",
    "reasoning_effort": "str null",
    "logprobs": "bool null",
    "top_logprobs": "int null",
}
TEXT_FIELDS = {**OPENAI, "prompt": "str", "logprobs": "int null"}


def native_error(status: int, message: str) -> Script:
    return page({"error": message}, status, content_type=JSON)


def openai_error(status: int, message: str) -> Script:
    kind = {400: "invalid_request_error", 404: "not_found_error"}.get(status, "api_error")
    return page({"error": {"message": message, "type": kind, "param": None, "code": None}}, status, content_type=JSON)


def is_installed(model: str) -> bool:
    return model.removesuffix(":latest") == OWN_MODEL


class _Ollama(Voice):
    head_first = False

    def error(self, status: int, message: str) -> Script:
        raise NotImplementedError

    def refuse(self, status: int, message: str) -> Refused:
        return Refused(self.error(status, message))

    def check_model(self, body: Json) -> str:
        name = body.get("model")
        if not name:
            raise self.refuse(400, "model is required")
        if not is_installed(name):
            raise self.refuse(404, f"model '{name}' not found")
        return str(name)

    def failed(self, ask: Ask) -> Script:
        return self.error(500, self.say.message)

    def full(self, ask: Ask) -> Script:
        return self.error(503, "server busy, please try again. maximum pending requests exceeded")

    def calls(self, said: Said) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each call: they come whole."""
        return [(f"call_{i:08x}", name, arguments) for i, (name, arguments) in enumerate(said.calls)]

    def call_now(self, said: Said, turn: Turn) -> tuple[int, tuple[str, str, str]] | None:
        """The call that is whole with this piece."""
        if turn.output.kind != "arguments":
            return None
        last = [o for o in said.outputs if o.kind == "arguments" and o.call == turn.output.call][-1]
        return (turn.output.call, self.calls(said)[turn.output.call]) if last is turn.output else None


class _Native(_Ollama):
    kind: Kind

    def error(self, status: int, message: str) -> Script:
        return native_error(status, message)

    def ask(self, body: Json) -> Ask:
        if wrong := misfit(body, NATIVE):
            raise self.refuse(400, f"json: cannot unmarshal into Go struct field .{wrong}")
        options: Json = body.get("options") or {}
        if wrong := misfit(options, OPTIONS):
            raise self.refuse(400, f'option "{wrong}" must be of another type')
        model = self.check_model(body)
        messages: list[Json] = body.get("messages") or []
        for message in messages:
            self._check_message(message)
        limit = options.get("num_predict")
        form = body.get("format")
        return Ask(
            self.kind,
            model,
            stream=body.get("stream") is not False,
            usage=True,
            max_tokens=limit if limit is not None and limit > 0 else None,
            stop=words(options.get("stop")),
            logprobs=(body.get("top_logprobs") or 0) if body.get("logprobs") else None,
            schema={} if form == "json" else form or None,
            tools=tool_names(body.get("tools")),
            turns=tuple((m["role"], m.get("content") or "") for m in messages) or (("", body.get("prompt") or ""),),
            sampling=sampling_of(options),
        )

    def _check_message(self, message: Json) -> None:
        if misfit(message, {"role": "str", "content": "str null", "images": "strs null", "thinking": "str null"}):
            raise self.refuse(
                400, "json: cannot unmarshal into Go struct field Message.messages.content of type string"
            )
        calls: list[Json] = message.get("tool_calls") or []
        if any(not isinstance(call["function"].get("arguments"), dict) for call in calls):
            raise self.refuse(400, "json: cannot unmarshal string into Go struct field .arguments")

    def head(self, ask: Ask) -> Head:
        return stream_head(("content-type", "application/x-ndjson"))

    def line(self, fields: Json) -> Body:
        return Body(to_json({"model": OWN_MODEL, "created_at": AT, **fields}) + b"\n")

    def counts(self, said: Said) -> Json:
        """What the last line tells; what is zero is left out."""
        reason = {"tool_calls": "stop"}.get(said.finish, said.finish)
        told = {"done": True, "done_reason": reason, "total_duration": 312000000, "load_duration": 2100000}
        told |= {"prompt_eval_count": said.prompt_tokens, "prompt_eval_duration": 41000000}
        told |= {"eval_count": said.completion_tokens, "eval_duration": 180000000}
        return {key: value for key, value in told.items() if value}

    def broken(self, ask: Ask) -> list[Step]:
        return [Body(to_json({"error": self.say.message}) + b"\n"), end()]

    def logprobs(self, ask: Ask, pieces: list[str]) -> Json:
        if ask.logprobs is None or not pieces:
            return {}
        return {"logprobs": [token_logprob(piece, ask.logprobs) for piece in pieces]}


def _is_json(arguments: str) -> bool:
    """Its parser gives out a call when it is whole, and one that the limit cut never is."""
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True


class NativeChat(_Native):
    kind: Kind = "chat"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        kind, text, _ = turn.output
        message: Json = {"role": "assistant", "content": ""}
        if kind == "text":
            message["content"] = text
        elif kind == "reasoning":
            message["thinking"] = text
        elif (call := self.call_now(said, turn)) is not None and _is_json(call[1][2]):
            message["tool_calls"] = [self._call(*call)]
        else:
            return []
        return [self.line({"message": message, "done": False, **self.logprobs(ask, of_text(turn))})]

    def _call(self, index: int, call: tuple[str, str, str]) -> Json:
        ident, name, arguments = call
        return {"id": ident, "function": {"index": index, "name": name, "arguments": json.loads(arguments)}}

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        return [self.line({"message": {"role": "assistant", "content": ""}, **self.counts(said)}), end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        message: Json = {"role": "assistant", "content": said.text}
        if said.reasoning:
            message["thinking"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [self._call(i, call) for i, call in enumerate(self.calls(said))]
        made = {"message": message, **self.logprobs(ask, said.pieces), **self.counts(said)}
        return page({"model": OWN_MODEL, "created_at": AT, **made}, content_type=JSON)


class NativeGenerate(_Native):
    kind: Kind = "text"

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        kind, text, _ = turn.output
        told = {"response": text} if kind == "text" else {"response": "", "thinking": text}
        return [self.line({**told, "done": False, **self.logprobs(ask, of_text(turn))})]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        return [self.line({"response": "", **self.counts(said), "context": [1, 2, 3]}), end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        thinking = {"thinking": said.reasoning} if said.reasoning else {}
        made = {"response": said.text, **thinking, **self.logprobs(ask, said.pieces), **self.counts(said)}
        return page({"model": OWN_MODEL, "created_at": AT, **made, "context": [1, 2, 3]}, content_type=JSON)


class _Converted(_Ollama):
    kind: Kind
    fields: Mapping[str, str]
    required: str

    def error(self, status: int, message: str) -> Script:
        return openai_error(status, message)

    def ask(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or (None if self.required in body else self.required)
        if wrong:
            raise self.refuse(400, f"json: cannot unmarshal into Go struct field .{wrong}")
        self.check_model(body)
        effort = body.get("reasoning_effort")
        if effort is not None and effort not in EFFORTS:
            raise self.refuse(400, f"invalid reasoning value: '{effort}'")
        if body.get("messages") == []:
            raise self.refuse(400, "[] is too short - 'messages'")
        read = {key: body.get(key) for key in self.fields if key in body}
        if self.kind == "chat":
            read["messages"] = [split for message in body["messages"] for split in self._split(message)]
        return openai_ask(read, self.kind)

    def _split(self, message: Json) -> list[Json]:
        """Every part of a list becomes a message of its own."""
        content = message.get("content")
        if content is None and not message.get("tool_calls"):
            raise self.refuse(400, "invalid message content type: <nil>")
        parts = as_list(content)
        return [message] if parts is None else [{**message, "content": text_of([part])} for part in parts]

    def head(self, ask: Ask) -> Head:
        return stream_head(("content-type", "text/event-stream"))

    def usage(self, said: Said) -> Json:
        prompt, completion = said.prompt_tokens, said.completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class Chat(_Converted):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"

    def chunk(self, choices: list[Json], model: str = OWN_MODEL, **more: object) -> Step:
        top = {"id": "chatcmpl-417", "object": "chat.completion.chunk", "created": CREATED_UNIX_S, "model": model}
        return sse({**top, "system_fingerprint": FINGERPRINT, "choices": choices, **more})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        kind, text, _ = turn.output
        delta: Json = {"role": "assistant"} if turn.first else {}
        if kind == "text":
            delta["content"] = text
        elif kind == "reasoning":
            delta |= {"content": "", "reasoning": text}
        elif (call := self.call_now(said, turn)) is not None:
            delta |= {"content": "", "tool_calls": [{**self._call(call[1]), "index": call[0]}]}
        else:
            return []
        more = {} if ask.logprobs is None else {"logprobs": chat_logprobs(of_text(turn), ask.logprobs)}
        return [self.chunk([{"index": 0, "delta": delta, "finish_reason": None, **more}])]

    def _call(self, call: tuple[str, str, str]) -> Json:
        ident, name, arguments = call
        return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        steps = [self.chunk([{"index": 0, "delta": {}, "finish_reason": said.finish}])]
        if ask.usage:
            steps.append(self.chunk([], usage=self.usage(said)))
        return [*steps, DONE, end()]

    def broken(self, ask: Ask) -> list[Step]:
        return [self.chunk([{"index": 0, "delta": {"content": ""}, "finish_reason": None}], model=""), end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        message: Json = {"role": "assistant", "content": said.text}
        if said.reasoning:
            message["reasoning"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [{**self._call(call), "index": i} for i, call in enumerate(self.calls(said))]
        more = {} if ask.logprobs is None else {"logprobs": chat_logprobs(said.pieces, ask.logprobs)}
        choice = {"index": 0, "message": message, "finish_reason": said.finish, **more}
        top = openai_top("chatcmpl-417", "chat.completion")
        answer = {**top, "system_fingerprint": FINGERPRINT, "choices": [choice], "usage": self.usage(said)}
        return page(answer, content_type=JSON)


class Text(_Converted):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"

    def chunk(self, ask: Ask, choices: list[Json], usage: Json | None = None, model: str = OWN_MODEL) -> Step:
        nothing = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        top = {"id": "cmpl-417", "object": "text_completion", "created": CREATED_UNIX_S, "choices": choices}
        told = {"usage": usage or nothing} if ask.usage else {}
        return sse({**top, "model": model, "system_fingerprint": FINGERPRINT, **told})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        if turn.output.kind != "text":
            return []
        told = {} if ask.logprobs is None else {"logprobs": text_logprobs(of_text(turn), ask.logprobs)}
        return [self.chunk(ask, [{"text": turn.output.text, "index": 0, "finish_reason": None, **told}])]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        steps = [self.chunk(ask, [{"text": "", "index": 0, "finish_reason": said.finish}])]
        if ask.usage:
            steps.append(self.chunk(ask, [], self.usage(said)))
        return [*steps, DONE, end()]

    def broken(self, ask: Ask) -> list[Step]:
        return [self.chunk(ask, [{"text": "", "index": 0, "finish_reason": None}], model=""), end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        told = {} if ask.logprobs is None else {"logprobs": text_logprobs(said.pieces, ask.logprobs)}
        choice = {"text": said.text, "index": 0, "finish_reason": said.finish, **told}
        top = openai_top("cmpl-417", "text_completion")
        answer = {**top, "system_fingerprint": FINGERPRINT, "choices": [choice], "usage": self.usage(said)}
        return page(answer, content_type=JSON)


class OllamaDialect(Dialect):
    name = "ollama"
    obeys_tool_choice = False
    several_prompts = False
    streams_several_prompts = False
    choices = False
    refuses_models = True

    def endpoints(self) -> Mapping[str, Voice]:
        return {
            "/api/chat": NativeChat(self.say, self.load),
            "/api/generate": NativeGenerate(self.say, self.load),
            "/v1/chat/completions": Chat(self.say, self.load),
            "/v1/completions": Text(self.say, self.load),
        }

    def embed(self, path: str, body: Json) -> Script | None:
        if path not in ("/api/embed", "/v1/embeddings"):
            return None
        error = native_error if path == "/api/embed" else openai_error
        if misfit(body, {"model": "str", "input": "str strs"}) or not body.get("input"):
            raise Refused(error(400, "invalid input type"))
        if not is_installed(body.get("model", "")):
            raise Refused(error(404, f"model '{body.get('model')}' not found"))
        native = path == "/api/embed"
        ask = openai_embed({**body, "encoding_format": None} if native else body)
        self.asks.append(ask)
        made, tokens = vectors(self.say, ask), self.say.prompt_tokens
        if native:
            spent = {"total_duration": 14143917, "load_duration": 1019500, "prompt_eval_count": tokens}
            return page({"model": OWN_MODEL, "embeddings": made, **spent}, content_type=JSON)
        data = [{"object": "embedding", "embedding": vector, "index": i} for i, vector in enumerate(made)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return page({"object": "list", "data": data, "model": OWN_MODEL, "usage": usage}, content_type=JSON)

    def pages(self) -> Mapping[str, Script]:
        listed = {"name": f"{OWN_MODEL}:latest", "model": f"{OWN_MODEL}:latest", "size": 500_000_000, "digest": "ab12"}
        loaded = {**listed, "expires_at": AT, "size_vram": 500_000_000, "context_length": self.load.context_tokens}
        model = {"id": f"{OWN_MODEL}:latest", "object": "model", "created": CREATED_UNIX_S, "owned_by": "library"}
        return {
            "/": page("Ollama is running", content_type="text/plain; charset=utf-8"),
            "/api/version": page({"version": "0.33.0"}, content_type=JSON),
            "/api/tags": page({"models": [{**listed, "modified_at": AT}]}, content_type=JSON),
            "/api/ps": page({"models": [loaded]}, content_type=JSON),
            "/v1/models": page({"object": "list", "data": [model]}, content_type=JSON),
        }

    def lost(self, request: Request) -> Script:
        return page("404 page not found", 404, content_type="text/plain")

    def unread(self, request: Request) -> Script:
        error = openai_error if request.target.startswith("/v1/") else native_error
        return error(400, "invalid character in the request body")

    def turned_away(self, request: Request) -> Script | None:
        host = (request.header("host") or b"").decode().rpartition(":")[0]
        return None if host == "localhost" or _is_address(host) else empty(403)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
