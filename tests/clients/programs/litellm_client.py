"""LiteLLM as a client: its ``openai`` provider with another address."""

from __future__ import annotations

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a list of prices when it is imported

import litellm

from tests.clients.programs.calls import (
    API_KEY,
    BASE_URL,
    MAX_TOKENS,
    PERSON_QUESTION,
    PROMPT,
    QUESTION,
    TEXTS,
    TOOL,
    UNKNOWN_MODEL,
    WEATHER_QUESTION,
    Found,
    Person,
    tell,
    user,
)

weir = {"api_base": BASE_URL, "api_key": API_KEY, "num_retries": 0}


def chat(model: str) -> Found:
    answer = litellm.completion(model=f"openai/{model}", messages=user(QUESTION), max_tokens=MAX_TOKENS, **weir)
    return {
        "text": answer.choices[0].message.content,
        "finish_reason": answer.choices[0].finish_reason,
        "completion_tokens": answer.usage.completion_tokens,
    }


def chat_stream(model: str) -> Found:
    chunks = list(
        litellm.completion(
            model=f"openai/{model}",
            messages=user(QUESTION),
            max_tokens=MAX_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
            **weir,
        )
    )
    pieces = [text for chunk in chunks for choice in chunk.choices if (text := choice.delta.content)]
    answer = litellm.stream_chunk_builder(chunks)
    assert answer.choices[0].message.content == "".join(pieces)
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "finish_reason": answer.choices[0].finish_reason,
        "completion_tokens": answer.usage.completion_tokens,
    }


def tool_stream(model: str) -> Found:
    stream = litellm.completion(
        model=f"openai/{model}", messages=user(WEATHER_QUESTION), tools=[TOOL], stream=True, **weir
    )
    answer = litellm.stream_chunk_builder(list(stream))
    (call,) = answer.choices[0].message.tool_calls
    return {
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "finish_reason": answer.choices[0].finish_reason,
    }


def structured(model: str) -> Found:
    answer = litellm.completion(model=f"openai/{model}", messages=user(PERSON_QUESTION), response_format=Person, **weir)
    return Person.model_validate_json(answer.choices[0].message.content).model_dump()


def embeddings(model: str) -> Found:
    answer = litellm.embedding(model=f"openai/{model}", input=TEXTS, **weir)
    return {"vectors": [entry["embedding"] for entry in answer.data]}


def completion(model: str) -> Found:
    answer = litellm.text_completion(
        model=f"text-completion-openai/{model}", prompt=PROMPT, max_tokens=MAX_TOKENS, **weir
    )
    return {"text": answer.choices[0].text, "finish_reason": answer.choices[0].finish_reason}


def completion_stream(model: str) -> Found:
    stream = litellm.text_completion(
        model=f"text-completion-openai/{model}", prompt=PROMPT, max_tokens=MAX_TOKENS, stream=True, **weir
    )
    pieces = [choice.text for chunk in stream for choice in chunk.choices if choice.text]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def unknown_model(_: str) -> Found:
    litellm.completion(model=f"openai/{UNKNOWN_MODEL}", messages=user(QUESTION), **weir)
    raise AssertionError("an unknown model answered")


if __name__ == "__main__":
    tell(
        {
            "chat": chat,
            "chat_stream": chat_stream,
            "tool_stream": tool_stream,
            "structured": structured,
            "embeddings": embeddings,
            "completion": completion,
            "completion_stream": completion_stream,
            "unknown_model": unknown_model,
        }
    )
