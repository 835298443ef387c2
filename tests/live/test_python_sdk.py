"""The official OpenAI client for Python against real engines behind Weir: every call of the API surface."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import (
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
    ChatCompletionToolParam,
)
from pydantic import BaseModel

from tests.live.real_engine import CHOSEN

pytestmark = pytest.mark.engine

MODEL = "smollm2-135m"
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Why is the sky blue?"}]
WEATHER_TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def calls_before(*cities: str) -> list[ChatCompletionMessageParam]:
    """A conversation in which a small model cannot help calling the tool again."""
    messages: list[ChatCompletionMessageParam] = []
    for number, city in enumerate(cities):
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        call: Any = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    return [*messages, {"role": "user", "content": "What is the weather in Paris?"}]


class Person(BaseModel):
    """What a schema-bound answer is read into."""

    name: str
    age: int


class TestChat:
    async def test_an_answer_comes_whole_with_the_model_that_was_asked_for(self, client: openai.AsyncOpenAI) -> None:
        for model in (MODEL, "default"):
            answer = await client.chat.completions.create(model=model, messages=QUESTION, max_tokens=8, temperature=0)
            assert answer.model == model
            assert answer.object == "chat.completion"
            assert answer.choices[0].message.role == "assistant"
            assert answer.choices[0].message.content
            assert answer.choices[0].finish_reason == "length"
            assert answer.usage is not None
            assert answer.usage.completion_tokens == 8
            assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8

    async def test_a_stream_gives_the_same_text_as_a_whole_answer(self, client: openai.AsyncOpenAI) -> None:
        whole = await client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12, temperature=0)
        stream = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=12, temperature=0, stream=True
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content
        assert {chunk.model for chunk in chunks} == {MODEL}
        assert chunks[-1].choices[0].finish_reason == "length"
        assert all(chunk.usage is None for chunk in chunks), "usage came although nobody asked for it"

    async def test_a_stream_ends_with_the_usage_if_asked_for_it(self, client: openai.AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            max_tokens=5,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 5

    async def test_the_streaming_helper_puts_the_answer_together(self, client: openai.AsyncOpenAI) -> None:
        async with client.chat.completions.stream(
            model=MODEL,
            messages=[{"role": "user", "content": "What is a river?"}],
            max_tokens=100,
            temperature=0,
            stop=[".", "!", "?"],  # the helper refuses an answer that ends at its token limit
            stream_options={"include_usage": True},
        ) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()
        assert kinds.count("content.delta") > 1
        assert "content.done" in kinds
        assert final.choices[0].message.content
        assert final.usage is not None
        assert final.usage.completion_tokens > 1

    async def test_several_choices_come_from_one_request(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=4, n=2, temperature=1, seed=1
        )
        assert sorted(choice.index for choice in answer.choices) == [0, 1]
        assert all(choice.message.content for choice in answer.choices)

    async def test_several_choices_stream_side_by_side(self, client: openai.AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=4, n=2, temperature=1, seed=1, stream=True
        )
        choices = [choice async for chunk in stream for choice in chunk.choices]
        assert {choice.index for choice in choices if choice.delta.content} == {0, 1}
        assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length", "length"]

    async def test_logprobs_come_with_and_without_a_stream(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
        )
        whole = answer.choices[0].logprobs
        assert whole is not None
        assert whole.content is not None
        assert [len(token.top_logprobs) for token in whole.content] == [2, 2, 2]
        stream = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2, stream=True
        )
        choices = [choice async for chunk in stream for choice in chunk.choices]
        tokens = [token for choice in choices if choice.logprobs for token in choice.logprobs.content or ()]
        assert [len(token.top_logprobs) for token in tokens] == [2, 2, 2]

    async def test_stop_strings_end_the_answer(self, client: openai.AsyncOpenAI) -> None:
        counting: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Write: one, two, three, four, five"}]
        answer = await client.chat.completions.create(
            model=MODEL, messages=counting, max_tokens=40, temperature=0, stop=[",", "."]
        )
        assert answer.choices[0].finish_reason == "stop"
        assert "," not in (answer.choices[0].message.content or "")

    async def test_a_content_may_be_a_list_of_text_parts(self, client: openai.AsyncOpenAI) -> None:
        question = "Why is the sky blue?"
        parts: list[ChatCompletionMessageParam] = [
            {
                "role": "user",
                "content": [{"type": "text", "text": text} for text in (question[:8], question[8:])],
            }
        ]
        one = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}], max_tokens=10, temperature=0
        )
        many = await client.chat.completions.create(model=MODEL, messages=parts, max_tokens=10, temperature=0)
        assert many.choices[0].message.content == one.choices[0].message.content

    async def test_a_schema_binds_the_answer(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.chat.completions.parse(
            model=MODEL,
            messages=[{"role": "user", "content": "Ann is 7 years old. Give her name and age as JSON."}],
            response_format=Person,
            max_tokens=60,
            temperature=0,
        )
        assert isinstance(answer.choices[0].message.parsed, Person)

    async def test_json_mode_gives_json(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Give the name Ann as a JSON object."}],
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": "name",
                    "schema": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}},
                               "required": ["name"], "additionalProperties": False},
                },
            },
            max_tokens=60,
            temperature=0,
        )  # fmt: skip
        assert list(json.loads(answer.choices[0].message.content or "")) == ["name"]

    async def test_fields_that_nobody_knows_reach_the_engine(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            max_tokens=20,
            extra_body={
                "min_p": 0.1,
                "timings_per_token": True,
                "grammar": 'root ::= "yes" | "no"',  # llama.cpp's word
                "structured_outputs": {"choice": ["yes", "no"]},  # vLLM's
                "of_no_engine": [1],
            },
        )
        assert answer.choices[0].message.content in ("yes", "no")


class TestTools:
    async def test_a_call_comes_whole(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(
            model=MODEL, messages=calls_before("Rome", "Oslo"), tools=[WEATHER_TOOL], max_tokens=60, temperature=0
        )
        assert answer.choices[0].finish_reason == "tool_calls"
        (call,) = answer.choices[0].message.tool_calls or []
        assert isinstance(call, ChatCompletionMessageFunctionToolCall)
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris"}

    async def test_a_call_streams(self, client: openai.AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=calls_before("Rome", "Oslo"),
            tools=[WEATHER_TOOL],
            max_tokens=60,
            temperature=0,
            stream=True,
        )
        choices = [choice async for chunk in stream for choice in chunk.choices]
        pieces = [call.function for choice in choices for call in choice.delta.tool_calls or () if call.function]
        assert "".join(piece.name or "" for piece in pieces) == "get_weather"
        assert json.loads("".join(piece.arguments or "" for piece in pieces)) == {"city": "Paris"}
        assert choices[-1].finish_reason == "tool_calls"

    async def test_the_streaming_helper_puts_a_call_together(self, client: openai.AsyncOpenAI) -> None:
        async with client.chat.completions.stream(
            model=MODEL, messages=calls_before("Rome", "Oslo"), tools=[WEATHER_TOOL], max_tokens=60, temperature=0
        ) as stream:
            final = await stream.get_final_completion()
        (call,) = final.choices[0].message.tool_calls or []
        assert json.loads(call.function.arguments) == {"city": "Paris"}

    async def test_the_result_of_a_call_is_understood(self, client: openai.AsyncOpenAI) -> None:
        asked = calls_before("Rome")[:2]
        result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": "call_0", "content": "21 degrees, sunny"}
        answer = await client.chat.completions.create(
            model=MODEL, messages=[*asked, result], tools=[WEATHER_TOOL], max_tokens=30, temperature=0
        )
        assert answer.choices[0].message.content


class TestCompletions:
    async def test_a_string_is_continued(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.completions.create(model=MODEL, prompt="Once upon a", max_tokens=6, temperature=0)
        assert answer.model == MODEL
        assert answer.choices[0].text
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 6

    async def test_a_continuation_streams(self, client: openai.AsyncOpenAI) -> None:
        whole = await client.completions.create(model=MODEL, prompt="Once upon a", max_tokens=8, temperature=0)
        stream = await client.completions.create(
            model=MODEL, prompt="Once upon a", max_tokens=8, temperature=0, stream=True
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
        assert {chunk.model for chunk in chunks} == {MODEL}
        assert chunks[-1].choices[0].finish_reason == "length"
        assert all(chunk.usage is None for chunk in chunks), "usage came although nobody asked for it"

    async def test_several_prompts_are_continued_in_order(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.completions.create(
            model=MODEL, prompt=["One two three", "Monday Tuesday"], max_tokens=4, temperature=0
        )
        assert sorted(choice.index for choice in answer.choices) == [0, 1]
        assert all(choice.text for choice in answer.choices)

    async def test_token_ids_are_a_prompt(self, client: openai.AsyncOpenAI, engine_urls: tuple[str, ...]) -> None:
        async with httpx2.AsyncClient(base_url=engine_urls[0], timeout=50) as engine:
            ids = (await engine.post("/tokenize", json={"content": "Once upon a", "prompt": "Once upon a"})).json()[
                "tokens"
            ]
        by_text = await client.completions.create(model=MODEL, prompt="Once upon a", max_tokens=6, temperature=0)
        by_ids = await client.completions.create(model=MODEL, prompt=ids, max_tokens=6, temperature=0)
        assert by_ids.choices[0].text == by_text.choices[0].text
        several = await client.completions.create(model=MODEL, prompt=[ids, ids], max_tokens=6, temperature=0)
        assert [choice.text for choice in several.choices] == [by_text.choices[0].text] * 2

    async def test_logprobs_come_with_a_continuation(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.completions.create(
            model=MODEL, prompt="Once upon a", max_tokens=3, temperature=0, logprobs=2
        )
        assert answer.choices[0].logprobs is not None


class TestTheRest:
    async def test_the_models_are_listed_and_found_one_by_one(self, client: openai.AsyncOpenAI) -> None:
        assert {model.id async for model in client.models.list()} >= {MODEL}
        for name in (MODEL, "default"):
            assert (await client.models.retrieve(name)).id == name

    async def test_an_unknown_model_is_an_error_that_names_a_near_one(self, client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.NotFoundError, match=f"did you mean .*{MODEL}") as failure:
            await client.chat.completions.create(model="smollm2-135", messages=QUESTION)
        assert failure.value.code == "model_not_found"

    async def test_embeddings_that_the_engine_does_not_make_are_its_error_in_words(
        self, client: openai.AsyncOpenAI
    ) -> None:
        with pytest.raises(openai.APIStatusError, match="embedding") as failure:
            await client.embeddings.create(model=MODEL, input="hello")
        assert failure.value.status_code in ((404,) if CHOSEN == "vllm" else (400, 501))

    async def test_an_engines_refusal_is_passed_on_with_its_words(self, client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="context") as failure:
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "word " * 5000}], max_tokens=4
            )
        assert failure.value.request_id

    async def test_the_raw_response_has_weirs_headers(self, client: openai.AsyncOpenAI) -> None:
        response = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=QUESTION, max_tokens=3, temperature=0, extra_headers={"x-request-id": "my-request-1"}
        )
        assert response.headers["x-request-id"] == "my-request-1"
        assert response.headers["x-weir-endpoint"].startswith(f"{MODEL}-")
        assert response.headers["x-weir-attempts"] == "1"
        assert "total;dur=" in response.headers["server-timing"]
        assert response.parse().choices[0].message.content

    async def test_the_raw_stream_has_weirs_headers(self, client: openai.AsyncOpenAI) -> None:
        async with client.chat.completions.with_streaming_response.create(
            model=MODEL, messages=QUESTION, max_tokens=3, temperature=0, stream=True
        ) as response:
            lines = [line async for line in response.iter_lines() if line]
        assert "ttft;dur=" in response.headers["server-timing"]
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert lines[-1] == "data: [DONE]"
        assert lines[-2].startswith(": weir endpoint=")

    async def test_requests_at_once_go_to_both_engines(self, client: openai.AsyncOpenAI) -> None:
        async def endpoint() -> str:
            response = await client.chat.completions.with_raw_response.create(
                model=MODEL, messages=QUESTION, max_tokens=12
            )
            return response.headers["x-weir-endpoint"]

        assert set(await asyncio.gather(*(endpoint() for _ in range(4)))) == {f"{MODEL}-0", f"{MODEL}-1"}

    async def test_the_client_that_blocks_works_as_well(self, base_url: str) -> None:
        def ask() -> str:
            with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
                stream = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=5, stream=True)
                return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)

        assert await asyncio.to_thread(ask)
