"""LangChain: chat model, tools, structured output, text model and embeddings of ``langchain-openai``."""

from __future__ import annotations

from functools import reduce
from operator import add

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import SecretStr

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
)

key = SecretStr(API_KEY)


def chats(model: str, max_tokens: int | None = MAX_TOKENS) -> ChatOpenAI:
    return ChatOpenAI(base_url=BASE_URL, api_key=key, model=model, max_tokens=max_tokens, max_retries=0)


def completes(model: str) -> OpenAI:
    return OpenAI(  # it would ask for chance by itself
        base_url=BASE_URL, api_key=key, model=model, max_tokens=MAX_TOKENS, temperature=0, max_retries=0
    )


def chat(model: str) -> Found:
    answer = chats(model).invoke(QUESTION)
    return {
        "text": answer.content,
        "finish_reason": answer.response_metadata["finish_reason"],
        "completion_tokens": answer.usage_metadata["output_tokens"],
    }


def chat_stream(model: str) -> Found:
    chunks = list(chats(model).stream(QUESTION, stream_usage=True))
    answer = reduce(add, chunks)
    return {
        "text": answer.content,
        "pieces": sum(bool(chunk.content) for chunk in chunks),
        "finish_reason": answer.response_metadata["finish_reason"],
        "completion_tokens": answer.usage_metadata["output_tokens"],
    }


def tool_stream(model: str) -> Found:
    answer = reduce(add, chats(model, max_tokens=None).bind_tools([TOOL]).stream(WEATHER_QUESTION))
    (call,) = answer.tool_calls
    return {
        "name": call["name"],
        "arguments": call["args"],
        "finish_reason": answer.response_metadata["finish_reason"],
    }


def structured(model: str) -> Found:
    person = chats(model, max_tokens=None).with_structured_output(Person).invoke(PERSON_QUESTION)
    assert isinstance(person, Person)
    return person.model_dump()


def embeddings(model: str) -> Found:
    # Its own check of the length sends token ids of OpenAI's models, which mean something else to every other model.
    embedder = OpenAIEmbeddings(
        base_url=BASE_URL, api_key=key, model=model, check_embedding_ctx_length=False, max_retries=0
    )
    return {"vectors": embedder.embed_documents(TEXTS)}


def completion(model: str) -> Found:
    (result,) = completes(model).generate([PROMPT]).generations[0]
    return {"text": result.text, "finish_reason": result.generation_info["finish_reason"]}


def completion_stream(model: str) -> Found:
    pieces = [piece for piece in completes(model).stream(PROMPT) if piece]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def unknown_model(_: str) -> Found:
    chats(UNKNOWN_MODEL).invoke(QUESTION)
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
