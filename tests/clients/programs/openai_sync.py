"""OpenAI's client for Python, as most programs use it."""

from __future__ import annotations

import json
from typing import Any, cast

import openai

from tests.clients.programs.calls import (
    API_KEY,
    BASE_URL,
    MAX_TOKENS,
    PROMPT,
    QUESTION,
    TEXTS,
    TOOL,
    UNKNOWN_MODEL,
    WEATHER_QUESTION,
    Found,
    tell,
    user,
)

client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)
messages = cast("Any", user(QUESTION))


def chat(model: str) -> Found:
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=MAX_TOKENS)
    assert answer.usage is not None
    return {
        "text": answer.choices[0].message.content,
        "finish_reason": answer.choices[0].finish_reason,
        "completion_tokens": answer.usage.completion_tokens,
    }


def chat_stream(model: str) -> Found:
    chunks = list(
        client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=MAX_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    choices = [choice for chunk in chunks for choice in chunk.choices]
    pieces = [choice.delta.content for choice in choices if choice.delta.content]
    usage = chunks[-1].usage
    assert usage is not None
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "finish_reason": choices[-1].finish_reason,
        "completion_tokens": usage.completion_tokens,
    }


def tool_stream(model: str) -> Found:
    stream = client.chat.completions.create(
        model=model, messages=cast("Any", user(WEATHER_QUESTION)), tools=cast("Any", [TOOL]), stream=True
    )
    choices = [choice for chunk in stream for choice in chunk.choices]
    functions = [call.function for choice in choices for call in choice.delta.tool_calls or () if call.function]
    return {
        "name": "".join(function.name or "" for function in functions),
        "arguments": json.loads("".join(function.arguments or "" for function in functions)),
        "finish_reason": choices[-1].finish_reason,
    }


def embeddings(model: str) -> Found:
    answer = client.embeddings.create(model=model, input=TEXTS)
    return {"vectors": [entry.embedding for entry in answer.data]}


def completion(model: str) -> Found:
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=MAX_TOKENS)
    return {"text": answer.choices[0].text, "finish_reason": answer.choices[0].finish_reason}


def completion_stream(model: str) -> Found:
    stream = client.completions.create(model=model, prompt=PROMPT, max_tokens=MAX_TOKENS, stream=True)
    choices = [choice for chunk in stream for choice in chunk.choices]
    pieces = [choice.text for choice in choices if choice.text]
    return {"text": "".join(pieces), "pieces": len(pieces), "finish_reason": choices[-1].finish_reason}


def unknown_model(_: str) -> Found:
    client.chat.completions.create(model=UNKNOWN_MODEL, messages=messages)
    raise AssertionError("an unknown model answered")


if __name__ == "__main__":
    tell(
        {
            "chat": chat,
            "chat_stream": chat_stream,
            "tool_stream": tool_stream,
            "embeddings": embeddings,
            "completion": completion,
            "completion_stream": completion_stream,
            "unknown_model": unknown_model,
        }
    )
