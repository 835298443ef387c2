"""llama.cpp's server, build 11434: ``timings`` on the last chunk, and the connection closed after streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import orjson
from pydantic import JsonValue

from gateway.simulator.bodies import CallRejected, CompletionBody, Ids, ModelBody, parse
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
    Vectors,
)
from gateway.simulator.dialects.sse import frame
from gateway.simulator.metrics_text import MetricsText
from gateway.simulator.output import Output
from gateway.simulator.text import FinishReason, Piece, pieces_of, token_id
from gateway.simulator.transcript import Fields, Transcript

BUILD = "b11434-simulated"
_JSON = "application/json; charset=utf-8"
_NATIVE = ("/completion", "/completions")
_STOPPED: Fields = {"error": {"code": 500, "message": "the server is stopping", "type": "server_error"}}


class LlamacppWire(OpenAiWire):
    """A chat or completion answer."""

    media_type: ClassVar[str] = "text/event-stream"

    def opening(self) -> Fields | None:
        return {"role": "assistant", "content": None}

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        match piece.channel:
            case "content":
                return {"content": piece.text}
            case "reasoning":
                return {"reasoning_content": piece.text}
            case "tool_name":
                return None
            case "tool_arguments":
                call: Fields = {"index": 0}
                function: Fields = {"arguments": piece.text}
                if self.is_first_argument(index):
                    call |= {"id": self._tool_call_id, "type": "function"}
                    function = {"name": self.said.text(index, "tool_name")} | function
                return {"tool_calls": [call | {"function": function}]}

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        logprobs = self.logprobs(index, pieces) if pieces else None
        if self.kind == "completion":
            return payload | {"index": index, "logprobs": logprobs, "finish_reason": finish}
        asked = {"logprobs": logprobs} if self.call.logprobs is not None and pieces else {}
        return {"finish_reason": finish, "index": index} | payload | asked

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        head = self.head(".chunk" if self.kind == "chat" else "")
        chunk: Fields = {"choices": choices, "created": head["created"]}
        if self.kind == "chat":
            chunk |= {"id": self.id, "model": head["model"], "system_fingerprint": BUILD, "object": head["object"]}
            return chunk | ({"timings": _timings(self.said)} if finish and not self.call.include_usage else {})
        chunk |= {"model": head["model"], "system_fingerprint": BUILD, "object": head["object"]}
        if finish:
            return chunk | {"usage": self.usage(), "id": self.id, "timings": _timings(self.said)}
        return chunk | {"id": self.id}

    def sends_usage(self) -> bool:
        return self.kind == "chat" and self.call.include_usage

    def usage_chunk(self) -> Fields:
        return super().usage_chunk() | {"timings": _timings(self.said)}

    def usage(self) -> Fields:
        prompt, completion = self.call.prompt_tokens, self.said.completion_tokens
        usage: Fields = {"completion_tokens": completion, "prompt_tokens": prompt, "total_tokens": prompt + completion}
        return usage | {"prompt_tokens_details": {"cached_tokens": 0}}

    def broken(self) -> bytes:
        return frame(_STOPPED)

    def reply(self) -> Reply:
        return _stopped() if self.said.aborted else _reply(200, self.body())

    def body(self) -> Fields:
        choices: list[Fields] = []
        for index, (pieces, finish) in enumerate(zip(self.said.pieces, self.said.finish, strict=True)):
            shown = [piece for piece in pieces if piece.channel == "content"]
            logprobs = self.logprobs(index, shown)
            if self.kind == "completion":
                text: Fields = {"text": self.said.text(index, "content"), "index": index}
                choices.append(text | {"logprobs": logprobs, "finish_reason": finish})
                continue
            message: Fields = {"role": "assistant", "content": self.content(index) or ""}
            if thoughts := self.said.text(index, "reasoning"):
                message["reasoning_content"] = thoughts
            if self.said.called(index):
                message["tool_calls"] = self.calls(index, self._tool_call_id)
            choice: Fields = {"finish_reason": finish, "index": index, "message": message}
            choices.append(choice | ({"logprobs": logprobs} if logprobs is not None else {}))
        body: Fields = {"choices": choices, "created": self.created_unix_s, "model": self.call.model}
        body |= {"system_fingerprint": BUILD, "object": self.head()["object"], "usage": self.usage()}
        return body | {"id": self.id, "timings": _timings(self.said)}

    @property
    def _tool_call_id(self) -> str:
        return self.hashed(32)


class LlamacppNativeWire(NativeWire):
    """An answer of /completion; ``returns_tokens``: with the numbers of its tokens."""

    media_type: ClassVar[str] = "text/event-stream"
    returns_tokens = False

    def frames(self, output: Output) -> list[bytes]:
        self.said.add(output)
        if output.piece is None:
            return [frame(_STOPPED)]
        tokens = [token_id(output.piece.text)] if self.returns_tokens else []
        body: Fields = {"index": 0, "content": output.piece.text, "tokens": tokens, "stop": False, "id_slot": -1}
        body |= {"tokens_predicted": self.said.completion_tokens, "tokens_evaluated": self.call.prompt_tokens}
        return [frame(body), *([frame(self._last("", []))] if output.finish_reason else [])]

    def reply(self) -> Reply:
        if self.said.aborted:
            return _stopped()
        tokens = [token_id(piece.text) for piece in self.said.pieces[0]] if self.returns_tokens else []
        return _reply(200, self._last(self.text, tokens))

    def _last(self, content: str, tokens: list[int]) -> Fields:
        stopping_word = self.answer.stop_reason or ""
        stop_type = "word" if stopping_word else "limit" if self.said.finish[0] == "length" else "eos"
        count = self.said.completion_tokens
        body: Fields = {"index": 0, "content": content, "tokens": tokens, "id_slot": 0, "stop": True}
        body |= {"model": self.call.model, "tokens_predicted": count, "tokens_evaluated": self.call.prompt_tokens}
        body |= {"generation_settings": {}, "prompt": self.call.prompts[0].text, "has_new_line": "\n" in self.text}
        body |= {"truncated": False, "stop_type": stop_type, "stopping_word": stopping_word}
        return body | {"tokens_cached": self.call.prompt_tokens + count, "timings": _timings(self.said)}


class _CompletionBody(ModelBody):
    prompt: str | Ids
    n_predict: int | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    return_tokens: bool | None = None


class _ContentBody(ModelBody):
    content: str
    with_pieces: bool | None = None


class Llamacpp:
    """The dialect of llama.cpp."""

    rules = Rules(
        names="ignored",
        completion_tokens=None,
        clamps=True,
        max_stops=None,
        checks_ranges=False,
        named_finish="tool_calls",
        goes_on="always",
    )
    headers = (("server", "llama.cpp"), ("access-control-allow-origin", ""))
    stream_headers = (("x-accel-buffering", "no"), ("keep-alive", "timeout=5, max=100"))
    stream_start: StreamStart = "with_slot"
    closes_streams = True
    has_queue_limit = False
    edges_s = ()

    def routes(self) -> Mapping[str, Route]:
        chat, completion = Generates(self._generate), Generates(self._generate_native)
        vectors, models = Embeds(self._embed), Page(("GET",), self._models)
        healthy = Page(("GET", "HEAD"), lambda _, __: _reply(200, {"status": "ok"}))
        return {
            **dict.fromkeys(("/v1/chat/completions", "/chat/completions", "/v1/completions"), chat),
            **dict.fromkeys(_NATIVE, completion),
            **dict.fromkeys(("/v1/embeddings", "/embeddings"), vectors),
            **dict.fromkeys(("/v1/models", "/models"), models),
            **dict.fromkeys(("/health", "/v1/health"), healthy),
            "/tokenize": Page(("POST",), self._tokenize),
            "/props": Page(("GET",), self._props),
            "/slots": Page(("GET",), self._slots),
            "/metrics": Page(("GET",), self._metrics),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        return _failure(404, "File Not Found", "not_found_error")

    def refusal(self, error: CallRejected, path: str) -> Reply:
        if error.sizes is None:
            return _failure(400, str(error), "invalid_request_error")
        prompt, context = error.sizes
        message = f"request ({prompt} tokens) exceeds the available context size ({context} tokens), try increasing it"
        return _failure(400, message, "exceed_context_size_error", n_prompt_tokens=prompt, n_ctx=context)

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        return None

    def _generate(self, request: Request, state: State) -> Asked:
        kind, call = read_openai(self.rules, request, state)
        if len(call.answers) > len(call.prompts) * state.settings.pace.slots:
            raise CallRejected(f"n_cmpl cannot be greater than the number of slots ({state.settings.pace.slots})", "n")
        return LlamacppWire.asked(kind, call, f"chatcmpl-{request.random_id}", request.received_unix_s)

    def _generate_native(self, request: Request, state: State) -> Asked:
        body = parse(_CompletionBody, "application/json", request.body)
        limit = body.max_tokens if body.n_predict is None else body.n_predict
        asked = CompletionBody(prompt=body.prompt, stream=body.stream, max_tokens=limit)
        asked.stop, asked.seed, asked.ignore_eos = body.stop, body.seed, body.ignore_eos
        wire = LlamacppNativeWire(reader_of(self.rules, state).completion(asked), "", request.received_unix_s)
        wire.returns_tokens = bool(body.return_tokens)
        return Asked(wire.call, wire)

    def _embed(self, request: Request, state: State) -> Vectors:
        call, reply = embedded(self.rules, request, state)
        return Vectors(call, reply._replace(content_type=_JSON, headers=_KEPT))

    def _tokenize(self, request: Request, state: State) -> Reply:
        body = parse(_ContentBody, "application/json", request.body)
        tokens: list[JsonValue] = [token_id(piece) for piece in pieces_of(body.content)]
        if body.with_pieces:
            tokens = [{"id": token_id(piece), "piece": piece} for piece in pieces_of(body.content)]
        return _reply(200, {"tokens": tokens})

    def _models(self, request: Request, state: State) -> Reply:
        meta: Fields = {"n_ctx": state.settings.context_tokens, "n_ctx_train": state.settings.context_tokens}
        listed = model_list(state, "llamacpp", aliases=list(state.settings.models), tags=[], meta=meta)
        return listed._replace(content_type=_JSON, headers=_KEPT)

    def _props(self, request: Request, state: State) -> Reply:
        settings: Fields = {"params": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "n_predict": -1}}
        props: Fields = {"default_generation_settings": settings | {"n_ctx": state.settings.context_tokens}}
        props |= {"total_slots": state.settings.pace.slots, "model_alias": state.model, "model_path": state.model}
        props |= {"modalities": {"vision": False, "video": False, "audio": False}, "endpoint_slots": True}
        props |= {"endpoint_props": False, "endpoint_metrics": True, "chat_template": "", "build_info": BUILD}
        return _reply(200, props)

    def _slots(self, request: Request, state: State) -> Reply:
        slots = state.settings.pace.slots
        if "fail_on_no_slot=1" in request.query.split("&") and state.running >= slots:
            return _failure(503, "no slot available", "unavailable_error")
        entries: list[Fields] = []
        for number in range(slots):
            slot: Fields = {"id": number, "n_ctx": state.settings.context_tokens, "speculative": False}
            entries.append(slot | {"is_processing": number < state.running})
        return Reply(200, entries, _JSON, _KEPT)

    def _metrics(self, request: Request, state: State) -> Reply:
        counts, text = state.counts, MetricsText("llamacpp:")
        decode_s = counts.inference.sum_s - counts.prefill_s
        prompt, predicted = counts.prompt_tokens, counts.generation_tokens
        text.add("prompt_tokens_total", "counter", "Prompt tokens processed, without cached ones.", prompt)
        text.add("prompt_tokens_cached_total", "counter", "Prompt tokens from the cache.", 0)
        text.add("prompt_seconds_total", "counter", "Time spent on prompts.", counts.prefill_s)
        text.add("tokens_predicted_total", "counter", "Tokens generated.", predicted)
        text.add("tokens_predicted_seconds_total", "counter", "Time spent generating.", decode_s)
        text.add("prompt_tokens_seconds", "gauge", "Prompt tokens a second.", _rate(prompt, counts.prefill_s))
        text.add("predicted_tokens_seconds", "gauge", "Tokens a second.", _rate(predicted, decode_s))
        text.add("requests_processing", "gauge", "Requests that hold a slot.", state.running)
        text.add("requests_deferred", "gauge", "Requests in the queue.", state.waiting)
        return Reply(200, text.render(), "text/plain; version=0.0.4", _KEPT)


_KEPT = (("keep-alive", "timeout=5, max=100"),)


def _reply(status: int, body: Fields) -> Reply:
    return Reply(status, orjson.dumps(body), _JSON, _KEPT if status == 200 else (("connection", "close"),))


def _failure(status: int, message: str, type: str, **more: int) -> Reply:
    return _reply(status, {"error": {"code": status, "message": message, "type": type} | more})


def _stopped() -> Reply:
    return _reply(500, _STOPPED)


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0


def _timings(said: Transcript) -> Fields:
    prompt, predicted = said.call.prompt_tokens, said.completion_tokens
    prompt_ms, predicted_ms = said.prefill_s * 1000, said.decode_s * 1000
    return {
        "cache_n": 0,
        "prompt_n": prompt,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_token_ms": round(prompt_ms / prompt, 3),
        "prompt_per_second": round(_rate(prompt, said.prefill_s), 2),
        "predicted_n": predicted,
        "predicted_ms": round(predicted_ms, 3),
        "predicted_per_token_ms": round(predicted_ms / max(1, predicted), 3),
        "predicted_per_second": round(_rate(predicted, said.decode_s), 2),
    }
