"""Chat: whatever the engine's dialect, the client reads the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.rig import (
    MODEL,
    REASONED,
    TEXT,
    assert_answered,
    assert_openai_stream,
    behind_weir,
    both_ways,
    every_engine,
    joined,
    usage_chunks,
)
from tests.fakes.dialects.answer import Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.raw_client import r0

PIECES = len(Say().text)


class TestStream:
    @every_engine
    async def test_the_sdk_reads_the_text_and_why_it_ended(self, name: str) -> None:
        async with behind_weir(name) as rig:
            stream = await rig.sdk.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
            )
            chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
        assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
        assert {chunk.model for chunk in chunks} == {MODEL}
        assert len({chunk.id for chunk in chunks}) == 1
        assert all(chunk.usage is None for chunk in chunks)

    @every_engine
    async def test_every_chunk_is_one_of_openais(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0())
        assert_openai_stream(reply)
        assert reply.choices()[0]["delta"]["role"] == "assistant"
        assert reply.content() == TEXT
        assert reply.finishes() == ["stop"]

    @every_engine
    @pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}], ids=["silent", "refused"])
    async def test_no_usage_comes_unless_asked_for(self, name: str, options: dict[str, object]) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(**options))
        assert_openai_stream(reply)
        assert usage_chunks(reply) == []

    @every_engine
    async def test_usage_comes_once_and_last_if_asked_for(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(stream_options={"include_usage": True}))
        assert_openai_stream(reply)
        (chunk,) = usage_chunks(reply)
        assert chunk == reply.chunks[-1]
        assert chunk["choices"] == []
        counts = {key: chunk["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
        assert counts == {"prompt_tokens": 12, "completion_tokens": PIECES, "total_tokens": 12 + PIECES}
        assert "weir_estimated" not in chunk["usage"]

    @every_engine
    @both_ways
    async def test_what_came_from_the_cache_is_told(self, name: str, stream: bool) -> None:
        options = {"stream_options": {"include_usage": True}} if stream else {}
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(stream=stream, **options))
        usage: dict[str, Any] = reply.chunks[-1]["usage"] if stream else reply.json()["usage"]
        details: dict[str, int] = usage.get("prompt_tokens_details") or {}
        assert details.get("cached_tokens") == (Say().cached_tokens if DIALECTS[name].tells_cached else None)

    @every_engine
    async def test_an_engines_keep_alives_are_no_chunks(self, name: str) -> None:
        async with behind_weir(name, Say(slow=True)) as rig:
            reply = await rig.weir.post(r0())
        assert_openai_stream(reply)
        assert reply.content() == TEXT

    @every_engine
    async def test_an_answer_without_text_is_whole(self, name: str) -> None:
        async with behind_weir(name, Say(text=())) as rig:
            reply = await rig.weir.post(r0())
        assert_openai_stream(reply)
        assert reply.content() == ""
        assert reply.finishes() == ["stop"]

    @every_engine
    async def test_one_connection_serves_a_stream_after_a_stream(self, name: str) -> None:
        async with behind_weir(name) as rig:
            replies = [await rig.weir.post(r0()) for _ in range(3)]
        assert [reply.content() for reply in replies] == [TEXT] * 3
        assert all(reply.header("x-weir-attempts") in (None, "1") for reply in replies)


class TestWhole:
    @every_engine
    async def test_the_sdk_reads_the_answer(self, name: str) -> None:
        async with behind_weir(name) as rig:
            answer = await rig.sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        assert answer.object == "chat.completion"
        assert answer.model == MODEL
        assert answer.id
        assert answer.choices[0].message.role == "assistant"
        assert answer.choices[0].message.content == TEXT
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, PIECES)
        assert answer.usage.total_tokens == 12 + PIECES

    @every_engine
    @both_ways
    async def test_two_answers_have_two_ids(self, name: str, stream: bool) -> None:
        async with behind_weir(name) as rig:
            replies = [await rig.weir.post(r0(stream=stream)) for _ in range(2)]
        first, second = (reply.chunks[0]["id"] if stream else reply.json()["id"] for reply in replies)
        assert first != second


class TestReasoning:
    @every_engine
    async def test_it_streams_under_both_names_before_the_text(self, name: str) -> None:
        async with behind_weir(name, REASONED) as rig:
            reply = await rig.weir.post(r0())
        assert_openai_stream(reply)
        assert reply.content() == TEXT
        assert joined(reply, "reasoning_content") == "Let me think"
        assert joined(reply, "reasoning") == "Let me think"

    @every_engine
    async def test_it_comes_whole_under_both_names(self, name: str) -> None:
        async with behind_weir(name, REASONED) as rig:
            reply = await rig.weir.post(r0(stream=False))
        message = reply.json()["choices"][0]["message"]
        assert message["content"] == TEXT
        assert message["reasoning_content"] == message["reasoning"] == "Let me think"


class TestLogprobs:
    @every_engine
    async def test_they_stream_with_their_tokens(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(logprobs=True, top_logprobs=2))
        if not assert_answered(reply, DIALECTS[name].logprobs, name, "logprobs"):
            return
        assert_openai_stream(reply)
        told = [e for c in reply.choices() if c.get("logprobs") for e in c["logprobs"]["content"]]
        assert [(entry["token"], entry["logprob"]) for entry in told] == [(piece, -0.5) for piece in Say().text]
        assert [entry["bytes"] for entry in told] == [list(piece.encode()) for piece in Say().text]
        assert all(len(entry["top_logprobs"]) == 2 for entry in told)

    @every_engine
    async def test_they_come_whole(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(stream=False, logprobs=True, top_logprobs=1))
        if not assert_answered(reply, DIALECTS[name].logprobs, name, "logprobs"):
            return
        told = reply.json()["choices"][0]["logprobs"]["content"]
        assert [entry["token"] for entry in told] == list(Say().text)
        assert all(len(entry["top_logprobs"]) == 1 for entry in told)


class TestSeveralChoices:
    @every_engine
    async def test_they_stream_side_by_side_with_one_usage(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(n=2, stream_options={"include_usage": True}))
        if not assert_answered(reply, DIALECTS[name].choices, name, "n"):
            return
        assert_openai_stream(reply)
        assert [reply.choices(i)[0]["delta"]["role"] for i in (0, 1)] == ["assistant", "assistant"]
        assert [reply.content(i) for i in (0, 1)] == [TEXT, TEXT]
        assert [reply.finishes(i) for i in (0, 1)] == [["stop"], ["stop"]]
        (chunk,) = usage_chunks(reply)
        assert (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]) == (12, 2 * PIECES)

    @every_engine
    async def test_they_come_whole(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(stream=False, n=2))
        if not assert_answered(reply, DIALECTS[name].choices, name, "n"):
            return
        answer = reply.json()
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert [choice["message"]["content"] for choice in answer["choices"]] == [TEXT, TEXT]
        assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "stop"]
        assert answer["usage"]["completion_tokens"] == 2 * PIECES
