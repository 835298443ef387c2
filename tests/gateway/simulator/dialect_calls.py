"""Calls and settings that the tests of the dialects share."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2

from gateway.simulator.batching import Pace
from gateway.simulator.server import Settings

FAST = Pace(ttft_s=0, itl_s=0, prefill_tokens_per_s=1e9)
ENDLESS = Pace(ttft_s=0, itl_s=3600, slots=1, prefill_tokens_per_s=1e9)
"""The first token comes at once and the second never."""

SKY = [{"role": "user", "content": "Why is the sky blue?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
LONG = [{"role": "user", "content": "word " * 2000}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def settings(dialect: str) -> Settings:
    """A fast engine that serves the model ``m``."""
    return Settings(dialect=dialect, models=("m",), pace=FAST, context_tokens=1024)


def chunks_of(response: httpx2.Response) -> list[dict[str, Any]]:
    """Returns the chunks of a stream of OpenAI's calls, which must be whole."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def steady(text: str) -> str:
    """Returns a text with what differs between runs replaced: ids, times, and numbers of tool calls."""
    text = re.sub(r'("id": ?")(chatcmpl-|cmpl-|call_)?[0-9a-f]{32}"', r"\1\2ID" + '"', text)
    text = re.sub(r'("id": ?")(chatcmpl-tool-|chatcmpl-|cmpl-|call_)[0-9a-f]+"', r"\1\2ID" + '"', text)
    text = re.sub(r'("created": ?)\d+', r"\g<1>0", text)
    text = re.sub(r'"created_at":"[^"]+"', '"created_at":"NOW"', text)
    return re.sub(r'"(total|prompt_eval|eval)_duration":\d+', r'"\1_duration":0', text)
