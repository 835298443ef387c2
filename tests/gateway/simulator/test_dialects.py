"""What holds in every dialect: the same words, tool calls, JSON, refusals under load, and signs to know it by."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest

from gateway.probing.engine_detection import Questioner, plain_question, recognise
from gateway.simulator.batching import Pace
from gateway.simulator.dialects import DIALECTS
from gateway.simulator.server import Settings
from tests.fakes.patience import WAIT_S
from tests.fakes.questions import fresh_upstream
from tests.gateway.simulator.dialect_calls import ENDLESS, SKY, TOOLS, WEATHER, chunks_of, settings
from tests.gateway.simulator.served import serve

ALL = tuple(DIALECTS)
CHAT = "/v1/chat/completions"


def said(chunks: list[dict[str, Any]], key: str) -> str:
    """Joins one field of the deltas of the first choice."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get(key) or "" for delta in deltas)


@pytest.mark.parametrize("dialect", ALL)
async def test_a_stream_and_a_whole_answer_say_what_every_engine_says(dialect: str) -> None:
    async with serve(settings("vllm")) as reference, serve(settings(dialect)) as engine:
        body = {"model": "m", "messages": SKY, "seed": 3}
        expected = (await reference.http.post(CHAT, json=body)).json()["choices"][0]["message"]["content"]
        whole = (await engine.http.post(CHAT, json=body)).json()
        chunks = chunks_of(await engine.http.post(CHAT, json=body | {"stream": True}))
        assert whole["choices"][0]["message"]["content"] == said(chunks, "content") == expected
        assert whole["choices"][0]["finish_reason"] == "stop"
        [finish] = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
        assert finish == "stop"
        assert whole["model"] == chunks[0]["model"] == "m"


@pytest.mark.parametrize("dialect", ALL)
async def test_usage_is_told_at_the_end_of_a_stream_that_asks_for_it_and_in_whole_answers(dialect: str) -> None:
    async with serve(settings(dialect)) as engine:
        body = {"model": "m", "messages": SKY, "max_tokens": 3}
        whole = (await engine.http.post(CHAT, json=body)).json()["usage"]
        asked = {"stream": True, "stream_options": {"include_usage": True}}
        last = chunks_of(await engine.http.post(CHAT, json=body | asked))[-1]
        assert last["choices"] == []
        assert last["usage"] == whole
        assert (whole["prompt_tokens"], whole["completion_tokens"], whole["total_tokens"]) == (10, 3, 13)
        unasked = chunks_of(await engine.http.post(CHAT, json=body | {"stream": True}))
        assert bool(unasked[-1].get("usage")) == (dialect == "lightllm")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("dialect", ALL)
async def test_a_tool_is_called_when_it_has_to_be(dialect: str, choice: object) -> None:
    async with serve(settings(dialect)) as engine:
        body = {"model": "m", "messages": SKY, "tools": TOOLS, "tool_choice": choice}
        whole = (await engine.http.post(CHAT, json=body)).json()["choices"][0]["message"]["tool_calls"]
        chunks = chunks_of(await engine.http.post(CHAT, json=body | {"stream": True}))
        calls = [call for chunk in chunks for c in chunk["choices"] for call in c["delta"].get("tool_calls") or ()]
        arguments = "".join(call["function"].get("arguments") or "" for call in calls)
        assert [call["function"]["name"] for call in whole] == [calls[0]["function"]["name"]] == ["get_weather"]
        assert json.loads(arguments) == json.loads(whole[0]["function"]["arguments"]) == {"city": "blue"}
        assert whole[0]["id"]
        assert calls[0]["id"]
        assert all(call["index"] == 0 for call in calls)


@pytest.mark.parametrize("dialect", ALL)
async def test_json_is_what_the_schema_asks_for(dialect: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 30}}, "required": ["n"]}
    wanted: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    if dialect == "tgi":
        wanted = {"type": "json_schema", "value": {"name": "x", "schema": schema}}
    async with serve(settings(dialect)) as engine:
        body = {"model": "m", "messages": SKY, "response_format": wanted}
        message = (await engine.http.post(CHAT, json=body)).json()["choices"][0]["message"]
        assert json.loads(message["content"]) == {"n": 30}
        if dialect != "tgi":
            body |= {"response_format": {"type": "json_object"}}
            message = (await engine.http.post(CHAT, json=body)).json()["choices"][0]["message"]
            assert set(json.loads(message["content"])) == {"topic", "answer"}


REASONING = {
    "vllm": "reasoning",
    "ollama": "reasoning",
    "lightllm": "reasoning",
    "sglang": "reasoning_content",
    "llamacpp": "reasoning_content",
}


@pytest.mark.parametrize("dialect", ALL)
async def test_reasoning_has_the_engines_name_or_is_not_shown(dialect: str) -> None:
    async with serve(settings(dialect)) as engine:
        body = {"model": "m", "messages": SKY, "reasoning_effort": "low"}
        message = (await engine.http.post(CHAT, json=body)).json()["choices"][0]["message"]
        chunks = chunks_of(await engine.http.post(CHAT, json=body | {"stream": True}))
        for key in ("reasoning", "reasoning_content"):
            expected = "The user asks about blue." if REASONING.get(dialect) == key else ""
            assert said(chunks, key) == (message.get(key) or "") == expected
        assert said(chunks, "content") == message["content"]


@pytest.mark.parametrize("dialect", [name for name in ALL if name not in ("tgi", "lightllm")])
async def test_embeddings_are_the_same_everywhere(dialect: str) -> None:
    async with serve(settings("vllm")) as reference, serve(settings(dialect)) as engine:
        body = {"model": "m", "input": ["a text", "another"], "dimensions": 8}
        expected, answer = [(await e.http.post("/v1/embeddings", json=body)).json() for e in (reference, engine)]
        assert [item["embedding"] for item in answer["data"]] == [item["embedding"] for item in expected["data"]]
        assert [item["index"] for item in answer["data"]] == [0, 1]
        assert answer["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]


@pytest.mark.parametrize("dialect", ALL)
async def test_a_completion_streams_its_text_and_its_end(dialect: str) -> None:
    async with serve(settings(dialect)) as engine:
        body = {"model": "m", "prompt": "The sky", "max_tokens": 5}
        whole = (await engine.http.post("/v1/completions", json=body)).json()
        chunks = chunks_of(await engine.http.post("/v1/completions", json=body | {"stream": True}))
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"] != ""
        assert whole["choices"][0]["finish_reason"] == choices[-1]["finish_reason"] == "length"
        assert whole["object"] == "text_completion"
        assert not any(choice["finish_reason"] for choice in choices[:-1])


@pytest.mark.parametrize("dialect", ALL)
async def test_the_openai_client_works_against_it(dialect: str) -> None:
    async with (
        serve(settings(dialect)) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none") as client,
    ):
        whole = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Why?"}])
        text = ""
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Why?"}], stream=True
        )
        async for chunk in stream:
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        assert text == whole.choices[0].message.content != ""
        assert (await client.models.list()).data[0].id.removesuffix(":latest") == "m"


SIGNS = {
    "vllm": ("/version", "version", "0.33.0"),
    "tgi": ("/info", "version", "3.3.7"),
    "ollama": ("/api/version", "version", "0.33.0"),
    "lightllm": ("/token_load", "dynamic_max_load", ""),
    "sglang": ("/server_info", "version", "0.5.23"),
    "llamacpp": ("/props", "build_info", "b11434"),
}


@pytest.mark.parametrize("dialect", ALL)
async def test_it_says_of_itself_what_the_engine_says(dialect: str) -> None:
    async with serve(settings(dialect)) as engine:
        for other, (path, key, start) in SIGNS.items():
            response = await engine.http.get(path)
            said = response.json().get(key) if response.status_code == 200 else None
            assert (said is not None and str(said).startswith(start)) == (other == dialect)


@pytest.mark.parametrize("dialect", ALL)
async def test_the_gateway_recognises_it(dialect: str) -> None:
    async with serve(settings(dialect)) as engine:
        upstream = fresh_upstream(engine.url)
        found = await recognise(Questioner(upstream, plain_question, WAIT_S))
        await upstream.aclose()
        assert found is not None
        assert found.engine == dialect


@pytest.mark.parametrize("dialect", [name for name in ALL if DIALECTS[name].has_queue_limit])
async def test_only_so_many_wait_as_the_limit_says(dialect: str) -> None:
    full = Settings(dialect=dialect, models=("m",), pace=ENDLESS, max_queue=1)
    async with serve(full) as engine:
        body = {"model": "m", "messages": SKY}
        waiting: list[asyncio.Task[httpx2.Response]] = []
        for count in (1, 2):  # one holds the slot, one waits
            waiting.append(asyncio.create_task(engine.http.post(CHAT, json=body)))
            await engine.until_open(count)
        refused = await engine.http.post(CHAT, json=body)
        assert refused.status_code in (429, 503)
        for task in waiting:
            task.cancel()
        await engine.until_open(0)


@pytest.mark.parametrize("dialect", [*(name for name in ALL if name not in ("vllm", "sglang"))])
async def test_a_stop_breaks_streams_off_with_an_error_and_fails_whole_answers(dialect: str) -> None:
    async with serve(Settings(dialect=dialect, models=("m",), pace=ENDLESS)) as engine:
        body = {"model": "m", "messages": SKY}
        stream = asyncio.create_task(engine.http.post(CHAT, json=body | {"stream": True}))
        await engine.until_open(1)
        whole = asyncio.create_task(engine.http.post(CHAT, json=body))
        await engine.until_open(2)
        engine.app.abort_all()
        text = (await stream).text
        assert (await whole).status_code in (424, 500)
        assert '"finish_reason":"stop"' not in text
        assert ('"error"' in text) == (dialect != "ollama")  # Ollama's converter loses it
        assert text.endswith("data: [DONE]\n\n") == (dialect == "tgi")


@pytest.mark.parametrize("dialect", ALL)
async def test_pace_and_queue_do_not_depend_on_the_dialect(dialect: str) -> None:
    async with serve(Settings(dialect=dialect, models=("m",), pace=Pace(ttft_s=0, itl_s=0.001, slots=2))) as engine:
        answers = await asyncio.gather(
            *(engine.http.post(CHAT, json={"model": "m", "messages": WEATHER, "max_tokens": 9}) for _ in range(6))
        )
        texts = {answer.json()["choices"][0]["message"]["content"] for answer in answers}
        assert len(texts) == 1
