"""The helpers of OpenAI's client for Python: ``stream``, which puts an answer together, and ``parse``."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import openai

from tests.clients.programs.calls import (
    API_KEY,
    BASE_URL,
    MAX_TOKENS,
    PERSON_QUESTION,
    QUESTION,
    TOOL,
    WEATHER_QUESTION,
    Found,
    Person,
    tell_async,
    user,
)

STRICT_TOOL = {**TOOL, "function": {**TOOL["function"], "strict": True}}  # the helper takes no other

client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)


async def chat_stream(model: str) -> Found:
    async with client.chat.completions.stream(
        model=model,
        messages=cast("Any", user(QUESTION)),
        max_tokens=MAX_TOKENS,
        stream_options={"include_usage": True},
    ) as stream:
        pieces = [event.delta async for event in stream if event.type == "content.delta"]
    answer = stream.current_completion_snapshot  # the final completion is refused to an answer that was cut short
    assert answer.usage is not None
    assert answer.choices[0].message.content == "".join(pieces)
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "finish_reason": answer.choices[0].finish_reason,
        "completion_tokens": answer.usage.completion_tokens,
    }


async def tool_stream(model: str) -> Found:
    async with client.chat.completions.stream(
        model=model, messages=cast("Any", user(WEATHER_QUESTION)), tools=cast("Any", [STRICT_TOOL])
    ) as stream:
        done = [event async for event in stream if event.type == "tool_calls.function.arguments.done"]
        answer = await stream.get_final_completion()
    (call,) = answer.choices[0].message.tool_calls or []
    assert [event.arguments for event in done] == [call.function.arguments]
    return {
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "finish_reason": answer.choices[0].finish_reason,
    }


async def structured(model: str) -> Found:
    answer = await client.chat.completions.parse(
        model=model, messages=cast("Any", user(PERSON_QUESTION)), response_format=Person
    )
    person = answer.choices[0].message.parsed
    assert person is not None
    return person.model_dump()


async def structured_stream(model: str) -> Found:
    async with client.chat.completions.stream(
        model=model, messages=cast("Any", user(PERSON_QUESTION)), response_format=Person
    ) as stream:
        person = (await stream.get_final_completion()).choices[0].message.parsed
    assert person is not None
    return person.model_dump()


if __name__ == "__main__":
    asyncio.run(
        tell_async(
            {
                "chat_stream": chat_stream,
                "tool_stream": tool_stream,
                "structured": structured,
                "structured_stream": structured_stream,
            }
        )
    )
