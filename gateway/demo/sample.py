"""One answer, streamed through Weir as any client would get it, with its times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson

QUESTION = "Why is the sky blue? Answer in two sentences."
MOST_TOKENS = 120
ANSWER_S = 60.0
DATA = "data:"


class SampleFailed(Exception):
    """The answer did not come, or not whole."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What one line of the stream tells.

    Attributes:
        text: A piece of the answer, or "".
        tokens: The answer's length as the engine counted it, in the frame that has it.
        finished: The engine gave a finish reason.
    """

    text: str = ""
    tokens: int | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of an answer, as its client saw them.

    Attributes:
        ttft_s: From the request sent to the first text.
        decode_s: From the first text to the last.
        tokens: Tokens of the answer.
        endpoint: Who answered.
    """

    ttft_s: float
    decode_s: float
    tokens: int
    endpoint: str

    def __str__(self) -> str:
        rate = f", then {(self.tokens - 1) / self.decode_s:.0f} tokens/s" if self.decode_s > 0 < self.tokens - 1 else ""
        return f"{self.tokens} tokens from {self.endpoint}: first after {self.ttft_s * 1e3:.0f} ms{rate}"


async def stream_answer(base_url: str, model: str, show: Callable[[str], None]) -> Timing:
    """Asks Weir at ``base_url`` (with ``/v1``) and shows each piece of the answer as it comes.

    Raises:
        SampleFailed: Weir answered with an error, or the stream broke.
    """
    question = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": MOST_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent_s = time.perf_counter()
    first_s = last_s = None
    tokens, finished = 0, False
    try:
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=ANSWER_S) as client,
            client.stream("POST", f"{base_url}/chat/completions", json=question) as response,
        ):
            if response.status_code != 200:
                body = (await response.aread()).decode(errors="replace")
                raise SampleFailed(f"Weir answered {response.status_code}: {body}")
            endpoint = response.headers.get("x-weir-endpoint", "")
            async for line in response.aiter_lines():
                frame = read_line(line)
                if frame.text:
                    last_s = time.perf_counter()
                    first_s = first_s or last_s
                    show(frame.text)
                tokens = frame.tokens or tokens
                finished = finished or frame.finished
    except httpx2.HTTPError as error:
        raise SampleFailed(f"the stream broke: {error or type(error).__name__}") from error
    if first_s is None or last_s is None or not finished:
        raise SampleFailed("the answer ended before it was whole")
    return Timing(first_s - sent_s, last_s - first_s, tokens, endpoint)


def read_line(line: str) -> Frame:
    """Reads one line of the stream.

    Raises:
        SampleFailed: It tells an error.
    """
    payload = line.removeprefix(DATA).strip()
    if not line.startswith(DATA) or payload == "[DONE]":
        return Frame()
    chunk: Any = orjson.loads(payload)
    if "error" in chunk:
        raise SampleFailed(f"the stream broke: {chunk['error']['message']}")
    usage: Any = chunk.get("usage")
    tokens: int | None = usage["completion_tokens"] if usage else None
    if not chunk.get("choices"):
        return Frame(tokens=tokens)
    choice: Any = chunk["choices"][0]
    return Frame(choice["delta"].get("content") or "", tokens, choice.get("finish_reason") is not None)
