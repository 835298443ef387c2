"""vLLM, release 0.33: role chunk with the first token, finish reason on the last one, ``reasoning``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from gateway.simulator.bodies import CallRejected, RefusalKind, TokenizeBody, parse
from gateway.simulator.calls import Rules, chat_tokens
from gateway.simulator.dialects.openai_wire import (
    OpenAiWire,
    embedding_entries,
    model_list,
    read_embeddings,
    read_openai,
    reader_of,
)
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
from gateway.simulator.metrics_text import TEXT_TYPE, MetricsText
from gateway.simulator.text import FinishReason, Piece, pieces_of, token_id
from gateway.simulator.transcript import Fields

VERSION = "0.33.0+simulated"
_FINISH_REASONS: tuple[FinishReason | str, ...] = ("stop", "length", "abort", "error", "repetition")
_TYPES: dict[RefusalKind, tuple[int, str]] = {
    "media_type": (400, "Bad Request"),
    "json": (400, "Bad Request"),
    "shape": (400, "Bad Request"),
    "value": (400, "BadRequestError"),
    "too_long": (400, "BadRequestError"),
    "unknown_model": (404, "NotFoundError"),
    "overload": (503, "Service Unavailable"),
}


class VllmWire(OpenAiWire):
    """A chat or completion answer."""

    tells_abort = True

    def merges(self, index: int, finish: FinishReason) -> bool:
        return True

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        match piece.channel:
            case "content":
                return {"content": piece.text}
            case "reasoning":
                return {"reasoning": piece.text}
            case "tool_name":
                head: Fields = {"id": self._tool_call_id, "type": "function", "index": 0}
                return {"content": None, "tool_calls": [head | {"function": {"name": piece.text}}]}
            case "tool_arguments":
                arguments: Fields = {"arguments": piece.text}
                return {"content": None, "tool_calls": [{"index": 0, "function": arguments}]}

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        choice: Fields = {"index": index} | payload
        stop_reason: Fields = {"stop_reason": self.call.answers[index].stop_reason if finish else None}
        if self.kind == "completion":
            choice |= {"logprobs": self.logprobs(index, pieces), "finish_reason": finish} | stop_reason
            return choice | {"prompt_token_ids": None, "token_ids": None}
        if payload["delta"] == self.opening():
            return choice | {"logprobs": None, "finish_reason": None}
        choice |= {"logprobs": self.logprobs(index, pieces), "finish_reason": finish}
        return choice | (stop_reason if finish else {}) | {"token_ids": None}

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        chunk = super().chunk(choices, index, finish)
        if index is None:
            return chunk
        opening = choices[0].get("delta") == self.opening()
        if self.call.include_usage and self.call.continuous_usage:
            chunk["usage"] = self._tokens(0 if opening else len(self.said.pieces[index]))
        if opening:
            chunk |= {"prompt_token_ids": None, "prompt_text": None}
        if finish and not self.call.include_usage:
            chunk["system_fingerprint"] = self._fingerprint
        return chunk

    def usage_chunk(self) -> Fields:
        return super().usage_chunk() | {"system_fingerprint": self._fingerprint}

    def usage(self) -> Fields:
        usage = self._tokens(self.said.completion_tokens)
        if thoughts := self.said.reasoning_tokens:
            usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return usage

    def body(self) -> Fields:
        choices = [self._whole(choice) for choice in range(len(self.call.answers))]
        end: Fields = {"service_tier": None, "system_fingerprint": self._fingerprint, "usage": self.usage()}
        return self.head() | {"choices": choices} | end | {"kv_transfer_params": None, "metrics": None}

    def _whole(self, index: int) -> Fields:
        finish = self.said.finish[index]
        end: Fields = {"logprobs": self.logprobs(index, self.said.pieces[index]), "finish_reason": finish}
        end |= {"stop_reason": self.call.answers[index].stop_reason if finish == "stop" else None, "token_ids": None}
        if self.kind == "completion":
            return {"index": index, "text": self.said.text(index, "content")} | end
        calls = self.calls(index, self._tool_call_id)
        message: Fields = {"role": "assistant", "content": "" if calls else self.content(index), "refusal": None}
        message |= {"annotations": None, "audio": None, "function_call": None}
        message |= {"tool_calls": calls} if calls else {}
        return {"index": index, "message": message | {"reasoning": self.said.text(index, "reasoning") or None}} | end

    def _tokens(self, completion_tokens: int) -> Fields:
        prompt_tokens = self.call.prompt_tokens
        total = prompt_tokens + completion_tokens
        return {"prompt_tokens": prompt_tokens, "total_tokens": total, "completion_tokens": completion_tokens}

    @property
    def _fingerprint(self) -> str:
        return f"vllm-{VERSION}-{crc32(self.call.model.encode()):08x}"

    @property
    def _tool_call_id(self) -> str:
        return f"chatcmpl-tool-{self.hashed(16)}"


class Vllm:
    """The dialect of vLLM."""

    rules = Rules(goes_on="flagged")
    headers = (("server", "uvicorn"),)
    stream_headers = ()
    stream_start: StreamStart = "at_once"
    closes_streams = False
    has_queue_limit = True
    edges_s = (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
        *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    )

    def routes(self) -> Mapping[str, Route]:
        return {
            "/v1/chat/completions": Generates(self._generate),
            "/v1/completions": Generates(self._generate),
            "/v1/embeddings": Embeds(self._embed),
            "/tokenize": Page(("POST",), self._tokenize),
            "/v1/models": Page(("GET",), self._models),
            "/health": Page(("GET",), lambda _, __: Reply(200, b"")),
            "/ping": Page(("GET", "POST"), lambda _, __: Reply(200, b"")),
            "/load": Page(("GET",), lambda _, state: Reply(200, {"server_load": state.running + state.waiting})),
            "/version": Page(("GET",), lambda _, __: Reply(200, {"version": VERSION})),
            "/metrics": Page(("GET",), self._metrics),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        return Reply(405, {"detail": "Method Not Allowed"}) if known else Reply(404, {"detail": "Not Found"})

    def refusal(self, error: CallRejected, path: str) -> Reply:
        status, kind = _TYPES[error.kind]
        return Reply(status, {"error": {"message": str(error), "type": kind, "param": error.param, "code": status}})

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        return None

    def _generate(self, request: Request, state: State) -> Asked:
        kind, call = read_openai(self.rules, request, state, any_type=False)
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        return VllmWire.asked(kind, call, f"{prefix}-{_id(request)}", request.received_unix_s)

    def _embed(self, request: Request, state: State) -> Vectors:
        call = read_embeddings(self.rules, request, state, any_type=False)
        head: Fields = {"id": f"embd-{_id(request)}", "object": "list", "created": request.received_unix_s}
        tokens = sum(item.tokens for item in call.inputs)
        usage: Fields = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
        body = head | {"model": call.model, "data": embedding_entries(call), "usage": usage}
        return Vectors(call, Reply(200, body))

    def _tokenize(self, request: Request, state: State) -> Reply:
        body = parse(TokenizeBody, request.content_type, request.body)
        reader_of(self.rules, state).model(body.model)
        messages = body.messages or []
        text = "\n".join(message.text for message in messages) if body.prompt is None else body.prompt
        pieces = pieces_of(text)
        count = chat_tokens(messages, body.tools) if body.prompt is None else len(pieces)
        reply: Fields = {"count": count, "max_model_len": state.settings.context_tokens}
        reply |= {"tokens": [token_id(piece) for piece in pieces]}
        return Reply(200, reply | {"token_strs": pieces if body.return_token_strs else None})

    def _models(self, request: Request, state: State) -> Reply:
        return model_list(state, "vllm", root=state.model, parent=None, max_model_len=state.settings.context_tokens)

    def _metrics(self, request: Request, state: State) -> Reply:
        counts, text = state.counts, MetricsText("vllm:", engine="0", model_name=state.model)
        finished = {str(reason): number for reason, number in counts.finished.items()}
        finished["stop"] = finished.get("stop", 0) + finished.pop("tool_calls", 0)
        text.add("num_requests_running", "gauge", "Requests that hold a slot.", state.running)
        text.add("num_requests_waiting", "gauge", "Requests in the queue.", state.waiting)
        text.add("kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", state.kv_usage_ratio)
        text.add("prompt_tokens_total", "counter", "Prompt tokens processed.", counts.prompt_tokens)
        text.add("generation_tokens_total", "counter", "Tokens generated.", counts.generation_tokens)
        samples = [({"finished_reason": reason}, float(finished.get(reason, 0))) for reason in _FINISH_REASONS]
        text.add_labelled("request_success_total", "counter", "Requests finished.", samples)
        refused = [({"reason": "max_num_queued_reqs"}, float(counts.overloaded))]
        text.add_labelled("admission_rejections_total", "counter", "Requests that found the queue full.", refused)
        text.add_histogram("time_to_first_token_seconds", "From arrival to the first token.", counts.first_token)
        return Reply(200, text.render(), TEXT_TYPE)


def _id(request: Request) -> str:
    return request.client_id or request.random_id[:16]
