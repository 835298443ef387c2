"""Text Generation Inference 3.3, the answers: empty ids, no role chunk, the end-of-text token, timings in headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gateway.simulator.dialects.native_wire import NativeWire
from gateway.simulator.dialects.openai_wire import OpenAiWire
from gateway.simulator.dialects.protocol import Headers, Reply
from gateway.simulator.dialects.sse import DONE, frame
from gateway.simulator.output import Output
from gateway.simulator.text import FinishReason, Piece, token_id
from gateway.simulator.transcript import Fields, Transcript, logprob

VERSION = "3.3.7+simulated"
_FINGERPRINT = f"{VERSION}-native"
_END_TOKEN: Fields = {"id": 2, "text": "</s>", "logprob": -0.001, "special": True}
_STOPPED = "Request failed during generation: the server is stopping"


class TgiWire(OpenAiWire):
    """A chat or completion answer."""

    media_type: ClassVar[str] = "text/event-stream"

    def opening(self) -> Fields | None:
        return None

    def empty_delta(self) -> Fields:
        return {"role": "assistant", "content": ""}

    def merges(self, index: int, finish: FinishReason) -> bool:
        return not self.said.stopped_by_itself(index)

    def tells_finish(self, index: int) -> bool:
        return self.kind == "completion" or not self.said.called(index)

    def delta(self, index: int, piece: Piece, *, first: bool) -> Fields | None:
        if piece.channel == "content":
            return {"role": "assistant", "content": piece.text}
        if piece.channel != "tool_arguments":
            return None
        name = self.said.text(index, "tool_name") if self.is_first_argument(index) else None
        call: Fields = {"index": 0, "id": "0", "type": "function"}
        return {"role": "assistant", "tool_calls": [call | {"function": {"name": name, "arguments": piece.text}}]}

    def choice(self, index: int, payload: Fields, finish: FinishReason | None, pieces: Sequence[Piece]) -> Fields:
        logprobs = self.logprobs(index, pieces) if pieces else None
        shown: str | None = None
        if finish is not None:
            shown = _reason(self.said, index)
            shown = "stop" if self.kind == "chat" and shown == "eos_token" else shown
        elif self.kind == "completion":
            shown = ""
        return {"index": index} | payload | {"logprobs": logprobs, "finish_reason": shown}

    def chunk(self, choices: list[Fields], index: int | None, finish: FinishReason | None) -> Fields:
        head = self.head(".chunk" if self.kind == "chat" else "")
        chunk: Fields = {"object": head["object"], "id": "", "created": head["created"]}
        if self.kind == "chat":
            chunk |= {"model": head["model"], "system_fingerprint": _FINGERPRINT, "choices": choices}
            return chunk | {"usage": None}
        chunk |= {"choices": choices, "model": head["model"], "system_fingerprint": _FINGERPRINT}
        return chunk | ({"usage": self.usage()} if finish is not None else {})

    def sends_usage(self) -> bool:
        return self.kind == "chat" and self.call.include_usage

    def usage(self) -> Fields:
        prompt, completion = self.call.prompt_tokens, _generated_tokens(self.said)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def broken(self) -> bytes:
        return error_frame(_STOPPED) + DONE

    def reply(self) -> Reply:
        if self.said.aborted:
            return failure(424, _STOPPED, "generation")
        return Reply(200, self.body(), headers=_timing_headers(self.said))

    def body(self) -> Fields:
        choices: list[Fields] = []
        for index, pieces in enumerate(self.said.pieces):
            shown = [piece for piece in pieces if piece.channel == "content"]
            reason = "length" if self.said.finish[index] == "length" else "stop"
            end: Fields = {"logprobs": self.logprobs(index, shown), "finish_reason": reason}
            if self.kind == "completion":
                choices.append({"index": index, "text": self.said.text(index, "content")} | end)
                continue
            calls = self.calls(index, "0")
            message: Fields = {"role": "assistant"}
            message |= {"tool_calls": calls} if calls else {"content": self.content(index)}
            choices.append({"index": index, "message": message} | end)
        head = self.head() | {"id": "", "system_fingerprint": _FINGERPRINT}
        return head | {"choices": choices, "usage": self.usage()}


class TgiNativeWire(NativeWire):
    """An answer of /generate, /generate_stream or /.

    Attributes:
        details: They are wanted.
        in_list: The whole answer stands in a list.
        prefix: What the text starts with: the prompt, if it is wanted back.
    """

    media_type: ClassVar[str] = "text/event-stream"
    details = False
    in_list = False
    prefix = ""

    def frames(self, output: Output) -> list[bytes]:
        self.said.add(output)
        if output.piece is None:
            return [frame({"error": _STOPPED, "error_type": "generation"})]
        tokens = [_token(output.piece)]
        if self.said.stopped_by_itself(0):
            tokens.append(_END_TOKEN)
        frames: list[bytes] = []
        for index, token in enumerate(tokens, self.said.completion_tokens):
            last = output.finish_reason is not None and token is tokens[-1]
            text = self.prefix + self.text if last else None
            event: Fields = {"index": index, "token": token, "generated_text": text}
            frames.append(frame(event | {"details": self._details() if last and self.details else None}))
        return frames

    def reply(self) -> Reply:
        if self.said.aborted:
            return failure(424, _STOPPED, "generation")
        body: Fields = {"generated_text": self.prefix + self.text}
        if self.details:
            tokens = [_token(piece) for piece in self.said.pieces[0]]
            tokens += [_END_TOKEN] if self.said.stopped_by_itself(0) else []
            body["details"] = self._details() | {"prefill": [], "tokens": tokens}
        return Reply(200, [body] if self.in_list else body, headers=_timing_headers(self.said))

    def _details(self) -> Fields:
        details: Fields = {"finish_reason": _reason(self.said, 0), "generated_tokens": _generated_tokens(self.said)}
        return details | {"seed": None, "input_length": self.call.prompt_tokens}


def failure(status: int, message: str, kind: str) -> Reply:
    """Returns an error answer."""
    return Reply(status, {"error": message, "error_type": kind})


def error_frame(message: str) -> bytes:
    """Returns an error within a stream of OpenAI's calls; its code is always 422."""
    return frame({"error": {"message": message, "http_status_code": 422}})


def _token(piece: Piece) -> Fields:
    return {"id": token_id(piece.text), "text": piece.text, "logprob": logprob(piece.text), "special": False}


def _reason(said: Transcript, index: int) -> str:
    if said.finish[index] == "length":
        return "length"
    return "eos_token" if said.stopped_by_itself(index) else "stop_sequence"


def _generated_tokens(said: Transcript) -> int:
    """The end-of-text token counts."""
    return said.completion_tokens + sum(map(said.stopped_by_itself, range(len(said.pieces))))


def _timing_headers(said: Transcript) -> Headers:
    generated, inference_s = _generated_tokens(said), said.last_s - said.queued_s
    return (
        ("x-compute-type", "simulated"),
        ("x-compute-time", f"{said.last_s:.6f}"),
        ("x-compute-characters", str(sum(len(prompt.text) for prompt in said.call.prompts))),
        ("x-total-time", str(round(said.last_s * 1000))),
        ("x-validation-time", "0"),
        ("x-queue-time", str(round(said.queued_s * 1000))),
        ("x-inference-time", str(round(inference_s * 1000))),
        ("x-time-per-token", str(round(inference_s * 1000 / max(1, generated)))),
        ("x-prompt-tokens", str(said.call.prompt_tokens)),
        ("x-generated-tokens", str(generated)),
    )
