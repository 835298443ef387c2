"""JSON of any shape, where an engine's chunk or answer should be: nothing but AdapterError comes out."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from adapters import ADAPTERS
from adapters.types import AdapterError, GatewayRequest, Operation, UpstreamRequest
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]
OPERATIONS: tuple[Operation, ...] = ("chat", "text_completion", "embeddings", "other")
LEAVES: tuple[Any, ...] = (
    None,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    True,
    "",
    "a",
    "stop",
    "length",
    "abort",
    "\ud800",
    [],
    {},
    [{}],
    {"a": {}},
)


class Generator:
    """Chunks that are right but for a value here and there; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.choose = self._random.choice

    def mostly(self, right: Any) -> Any:
        if self._random.random() < 0.06:
            return self.choose(LEAVES)
        if isinstance(right, dict):
            items: Json = right  # pyright: ignore[reportUnknownVariableType]
            return {key: self.mostly(value) for key, value in items.items() if self._random.random() < 0.85}
        if isinstance(right, list):
            return [self.mostly(value) for value in right]  # pyright: ignore[reportUnknownVariableType]
        return right

    def chunk(self) -> Any:
        call = {
            "index": self.choose((0, 1)),
            "id": self.choose(("a", "b")),
            "function": {"name": "f", "arguments": "{"},
        }
        message = {
            "role": "assistant",
            "content": self.choose(("x", None)),
            "reasoning": self.choose(("r", None)),
            "tool_calls": self.choose((None, [call], [call, call])),
        }
        choice = {
            "index": self.choose((0, 1)),
            self.choose(("delta", "message")): message,
            "text": self.choose((None, "x")),
            "logprobs": self.choose((None, {"content": [{"token": "x"}]})),
            "finish_reason": self.choose((None, "stop")),
        }
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
        return self.mostly(
            {
                "id": "i",
                "model": "m",
                "choices": self.choose(([choice], [choice, choice], [])),
                "usage": self.choose((None, usage)),
                "data": [{"embedding": [1.0]}],
            }
        )


def request_for(operation: Operation, *, stream: bool) -> GatewayRequest:
    body: Json = {"model": "c", "n": 2, "stream": stream, "stream_options": {"include_usage": True}}
    return GatewayRequest("r1", operation, "/v1", "POST", "c", stream, json.dumps(body).encode(), body, 0)


@pytest.mark.parametrize("name", sorted(ADAPTERS))
@pytest.mark.parametrize("seed", range(200))
def test_json_of_any_shape_raises_only_adapter_errors(name: str, seed: int) -> None:
    adapter, some = ADAPTERS[name], Generator(seed)
    for operation in OPERATIONS:
        chunks = [json.dumps(some.chunk()).encode() for _ in range(4)]
        stream = b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks) + some.choose((b"", b"data: [DONE]\n\n"))
        decoder = adapter.stream_decoder(request_for(operation, stream=True))
        with suppress(AdapterError):
            decoder.feed(stream)
            decoder.close()
        for upstream, content_type, body in (
            (UpstreamRequest("/v1", b"", True), "text/event-stream", stream),
            (UpstreamRequest("/v1", b"", False), "application/json", chunks[0]),
        ):
            reader = adapter.answer_reader(
                request_for(operation, stream=False), answer_head(content_type), streamed=upstream.stream
            )
            with suppress(AdapterError):
                reader.feed(body)
                reader.close()
        error = adapter.read_error(500, chunks[0])
        assert error.status == 500
        assert error.message


@pytest.mark.parametrize("depth", [300, 980, 1000, 1010, 1020, 100_000])
def test_json_nested_deeply_raises_only_adapter_errors(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    chunk = b'{"model":"m","usage":{},"choices":[{"index":0,"delta":{"content":"x","deep":%b}}]}' % nested
    for adapter in ADAPTERS.values():
        decoder = adapter.stream_decoder(request_for("chat", stream=True))
        with suppress(AdapterError):
            decoder.feed(b"data: " + chunk + b"\n\ndata: [DONE]\n\n")
            decoder.close()
        reader = adapter.answer_reader(request_for("chat", stream=False), answer_head(), streamed=False)
        reader.feed(chunk)
        with suppress(AdapterError):
            reader.close()
        assert adapter.read_error(500, chunk).status == 500


def test_half_an_emoji_in_an_answer_without_usage_is_counted() -> None:
    reader = ADAPTERS["openai"].answer_reader(request_for("chat", stream=False), answer_head(), streamed=False)
    reader.feed(b'{"choices": [{"index": 0, "message": {"content": "\\ud83d"}, "finish_reason": "stop"}]}')
    assert reader.close().usage is not None
