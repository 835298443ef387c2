"""OpenAI's own dialect: role chunk, separate finish chunk, ``usage: null`` beside it, 429 when full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.simulator.bodies import CallRejected
from gateway.simulator.calls import Rules
from gateway.simulator.dialects.openai_wire import OpenAiWire, embedded, model_list, read_openai
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
from gateway.simulator.dialects.sse import frame
from gateway.simulator.text import FinishReason, Piece
from gateway.simulator.transcript import Fields

_FINGERPRINT = "fp_simulated"
_STOPPED: Fields = {
    "error": {"message": "The server had an error while processing your request.", "type": "server_error"}
    | {"param": None, "code": None}
}


class OpenAiOwnWire(OpenAiWire):
    """A chat or completion answer. Thoughts are counted but not shown."""

    def opening(self) -> Fields | None:
        return {"role": "assistant", "content": "", "refusal": None}

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        match piece.channel:
            case "content":
                return {"content": piece.text}
            case "reasoning":
                return None
            case "tool_name":
                head: Fields = {"index": 0, "id": self._tool_call_id, "type": "function"}
                return {"tool_calls": [head | {"function": {"name": piece.text, "arguments": ""}}]}
            case "tool_arguments":
                return {"tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]}

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        logprobs = self.logprobs(index, pieces) if pieces else None
        return {"index": index} | payload | {"logprobs": logprobs, "finish_reason": finish}

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        head = self.head(".chunk" if self.kind == "chat" else "")
        chunk: Fields = head | {"service_tier": "default", "system_fingerprint": _FINGERPRINT, "choices": choices}
        return chunk | ({"usage": None} if self.call.include_usage else {})

    def usage(self) -> Fields:
        cached: Fields = {"cached_tokens": 0, "audio_tokens": 0}
        thoughts: Fields = {"reasoning_tokens": self.said.reasoning_tokens, "audio_tokens": 0}
        return super().usage() | {"prompt_tokens_details": cached, "completion_tokens_details": thoughts}

    def broken(self) -> bytes:
        return frame(_STOPPED)

    def broken_reply(self) -> Reply:
        return Reply(500, _STOPPED)

    def body(self) -> Fields:
        choices: list[Fields] = []
        for index, pieces in enumerate(self.said.pieces):
            shown = [piece for piece in pieces if piece.channel == "content"]
            end: Fields = {"logprobs": self.logprobs(index, shown), "finish_reason": self.said.finish[index]}
            if self.kind == "completion":
                choices.append({"index": index, "text": self.said.text(index, "content")} | end)
                continue
            calls = self.calls(index, self._tool_call_id)
            message: Fields = {"role": "assistant", "content": self.content(index)}
            message |= ({"tool_calls": calls} if calls else {}) | {"refusal": None, "annotations": []}
            choices.append({"index": index, "message": message} | end)
        end = {"usage": self.usage(), "service_tier": "default", "system_fingerprint": _FINGERPRINT}
        return self.head() | {"choices": choices} | end

    @property
    def _tool_call_id(self) -> str:
        return f"call_{self.hashed(24)}"


class OpenAi:
    """The dialect of OpenAI."""

    rules = Rules()
    headers = ()
    stream_headers = (("cache-control", "no-cache"),)
    stream_start: StreamStart = "with_first_token"
    closes_streams = False
    has_queue_limit = True
    edges_s = ()

    def routes(self) -> Mapping[str, Route]:
        return {
            "/v1/chat/completions": Generates(self._generate),
            "/v1/completions": Generates(self._generate),
            "/v1/embeddings": Embeds(lambda request, state: embedded(self.rules, request, state)),
            "/v1/models": Page(("GET",), lambda _, state: model_list(state, "system")),
        }

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        if known:
            return _error(
                405, f"Not allowed to {method} on {path}.", "invalid_request_error", None, "method_not_supported"
            )
        return _error(404, f"Invalid URL ({method} {path})", "invalid_request_error", None, None)

    def refusal(self, error: CallRejected, path: str) -> Reply:
        match error.kind:
            case "overload":
                message = "Rate limit reached. Please try again in 1s."
                return _error(429, message, "requests", None, "rate_limit_exceeded", (("retry-after", "1"),))
            case "unknown_model":
                return _error(404, str(error), "invalid_request_error", None, "model_not_found")
            case "too_long":
                return _error(400, str(error), "invalid_request_error", "messages", "context_length_exceeded")
            case _:
                param = error.param.removeprefix("body.") if error.param else None
                return _error(400, str(error), "invalid_request_error", param, None)

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        return None

    def _generate(self, request: Request, state: State) -> Asked:
        kind, call = read_openai(self.rules, request, state)
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        return OpenAiOwnWire.asked(kind, call, f"{prefix}-{request.random_id[:29]}", request.received_unix_s)


def _error(
    status: int,
    message: str,
    type: str,
    param: str | None,
    code: str | None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Reply:
    body: Fields = {"error": {"message": message, "type": type, "param": param, "code": code}}
    return Reply(status, body, headers=headers)
