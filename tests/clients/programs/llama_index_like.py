"""LlamaIndex: ``OpenAILike`` for chats, tools, schemas and texts, ``OpenAILikeEmbedding`` for vectors."""

from __future__ import annotations

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

from tests.clients.programs.calls import (
    API_KEY,
    BASE_URL,
    MAX_TOKENS,
    PERSON_QUESTION,
    PROMPT,
    QUESTION,
    TEXTS,
    UNKNOWN_MODEL,
    WEATHER_QUESTION,
    Found,
    Person,
    get_weather,
    tell,
)


def llm(model: str, *, chats: bool = True, max_tokens: int | None = MAX_TOKENS) -> OpenAILike:
    return OpenAILike(
        model=model,
        api_base=BASE_URL,
        api_key=API_KEY,
        is_chat_model=chats,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        max_tokens=max_tokens,
        temperature=0,  # it would ask for chance by itself
        max_retries=0,
    )


question = [ChatMessage(role="user", content=QUESTION)]


def chat(model: str) -> Found:
    answer = llm(model).chat(question)
    return {
        "text": answer.message.content,
        "finish_reason": answer.raw.choices[0].finish_reason,
        "completion_tokens": answer.raw.usage.completion_tokens,
    }


def chat_stream(model: str) -> Found:
    answers = list(llm(model).stream_chat(question))
    pieces = [answer.delta for answer in answers if answer.delta]
    assert answers[-1].message.content == "".join(pieces)
    return {"text": "".join(pieces), "pieces": len(pieces)}


def tool_stream(model: str) -> Found:
    caller = llm(model, max_tokens=None)
    tool = FunctionTool.from_defaults(get_weather)
    *_, last = caller.stream_chat_with_tools([tool], user_msg=WEATHER_QUESTION)
    (call,) = caller.get_tool_calls_from_response(last)
    return {"name": call.tool_name, "arguments": call.tool_kwargs}


def structured(model: str) -> Found:
    person = llm(model, max_tokens=None).structured_predict(Person, PromptTemplate(PERSON_QUESTION))
    assert isinstance(person, Person)
    return person.model_dump()


def embeddings(model: str) -> Found:
    embedder = OpenAILikeEmbedding(model_name=model, api_base=BASE_URL, api_key=API_KEY, max_retries=0)
    return {"vectors": embedder.get_text_embedding_batch(TEXTS)}


def completion(model: str) -> Found:
    answer = llm(model, chats=False).complete(PROMPT)
    return {"text": answer.text, "finish_reason": answer.raw.choices[0].finish_reason}


def completion_stream(model: str) -> Found:
    pieces = [answer.delta for answer in llm(model, chats=False).stream_complete(PROMPT) if answer.delta]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def unknown_model(_: str) -> Found:
    llm(UNKNOWN_MODEL).chat(question)
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
