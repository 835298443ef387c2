"""Text completions and embeddings."""

from __future__ import annotations

import array
import base64

import pytest

from tests.conformance.rig import (
    MODEL,
    TEXT,
    assert_answered,
    assert_openai_error,
    assert_openai_stream,
    behind_weir,
    both_ways,
    engines_that,
    every_engine,
    usage_chunks,
)
from tests.fakes.dialects.answer import Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.raw_client import t0

PIECES = len(Say().text)
VECTORS = [list(vector) for vector in Say().vectors]


class TestCompletions:
    @every_engine
    async def test_a_stream_is_openais(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(t0(), "/v1/completions")
        assert_openai_stream(reply, "text_completion")
        assert reply.content() == TEXT
        assert reply.finishes() == ["stop"]
        assert usage_chunks(reply) == []

    @every_engine
    async def test_a_stream_ends_with_its_usage_if_asked_for(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(t0(stream_options={"include_usage": True}), "/v1/completions")
        assert_openai_stream(reply, "text_completion")
        (chunk,) = usage_chunks(reply)
        assert chunk == reply.chunks[-1]
        assert (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]) == (12, PIECES)

    @every_engine
    async def test_the_sdk_reads_a_stream(self, name: str) -> None:
        async with behind_weir(name) as rig:
            stream = await rig.sdk.completions.create(model=MODEL, prompt="hi", stream=True)
            chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
        assert [str(c.choices[0].finish_reason) for c in chunks if c.choices[0].finish_reason] == ["stop"]

    @every_engine
    async def test_the_sdk_reads_a_whole_answer(self, name: str) -> None:
        async with behind_weir(name) as rig:
            answer = await rig.sdk.completions.create(model=MODEL, prompt="hi")
        assert answer.object == "text_completion"
        assert answer.model == MODEL
        assert answer.choices[0].text == TEXT
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, PIECES)
        assert rig.engine.asks[-1].turns == (("", "hi"),)

    @every_engine
    @both_ways
    async def test_limits_and_stop_strings_hold(self, name: str, stream: bool) -> None:
        async with behind_weir(name) as rig:
            cut = await rig.weir.post(t0(stream=stream, max_tokens=1), "/v1/completions")
            stopped = await rig.weir.post(t0(stream=stream, stop="lo"), "/v1/completions")
        if stream:
            assert (cut.content(), cut.finishes()) == ("Hel", ["length"])
            assert (stopped.content(), stopped.finishes()) == ("Hel", ["stop"])
            return
        found = [reply.json()["choices"][0] for reply in (cut, stopped)]
        assert [(choice["text"], choice["finish_reason"]) for choice in found] == [("Hel", "length"), ("Hel", "stop")]


class TestLogprobs:
    """In the old form: parallel lists of tokens and their log-probabilities."""

    @every_engine
    @both_ways
    async def test_they_come_with_their_tokens(self, name: str, stream: bool) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(t0(logprobs=1, stream=stream), "/v1/completions")
        dialect = DIALECTS[name]
        can = dialect.streams_text_logprobs if stream else dialect.text_logprobs
        if not assert_answered(reply, can, name, "logprobs"):
            return
        choices = reply.choices() if stream else reply.json()["choices"]
        told = [choice["logprobs"] for choice in choices if choice.get("logprobs")]
        assert [token for part in told for token in part["tokens"]] == list(Say().text)
        assert [value for part in told for value in part["token_logprobs"]] == [-0.5] * PIECES
        assert all(len(top) == 1 for part in told for top in part["top_logprobs"])


class TestSeveralPrompts:
    @every_engine
    async def test_they_stream_side_by_side_with_one_usage(self, name: str) -> None:
        body = t0(prompt=["one", "two"], stream_options={"include_usage": True})
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(body, "/v1/completions")
        if not DIALECTS[name].streams_several_prompts:
            assert reply.status == 400
            assert_openai_error(reply)
            return
        assert_openai_stream(reply, "text_completion")
        assert [reply.content(i) for i in (0, 1)] == [TEXT, TEXT]
        assert [reply.finishes(i) for i in (0, 1)] == [["stop"], ["stop"]]
        (chunk,) = usage_chunks(reply)
        assert (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]) == (24, 2 * PIECES)

    @every_engine
    async def test_they_come_whole(self, name: str) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(t0(prompt=["one", "two"], stream=False), "/v1/completions")
        if not DIALECTS[name].several_prompts:
            assert reply.status == 400
            assert_openai_error(reply)
            return
        answer = reply.json()
        assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, TEXT), (1, TEXT)]
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (24, 2 * PIECES)


class TestEmbeddings:
    @every_engine
    @pytest.mark.parametrize("encoding", ["float", "base64"])
    async def test_vectors_come_in_the_form_asked_for(self, name: str, encoding: str) -> None:
        body = {"model": MODEL, "input": ["one", "two"], "encoding_format": encoding}
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(body, "/v1/embeddings")
        if not DIALECTS[name].embeds:
            assert 400 <= reply.status < 500
            assert_openai_error(reply)
            return
        assert reply.status == 200, reply.body
        answer = reply.json()
        assert (answer["object"], answer["model"]) == ("list", MODEL)
        assert [entry["index"] for entry in answer["data"]] == [0, 1]
        assert {entry["object"] for entry in answer["data"]} == {"embedding"}
        found = [entry["embedding"] for entry in answer["data"]]
        if encoding == "base64":
            found = [list(array.array("f", base64.b64decode(text))) for text in found]
        assert found == VECTORS
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == 12

    @engines_that(lambda dialect: dialect.embeds)
    async def test_null_is_as_good_as_left_out(self, name: str) -> None:
        nulls = dict.fromkeys(("dimensions", "encoding_format", "user"))
        async with behind_weir(name) as rig:
            reply = await rig.weir.post({"model": MODEL, "input": "one", **nulls}, "/v1/embeddings")
        assert reply.status == 200, reply.body
        assert reply.json()["data"][0]["embedding"] == VECTORS[0]

    @engines_that(lambda dialect: dialect.embeds)
    async def test_the_sdk_reads_them(self, name: str) -> None:
        async with behind_weir(name) as rig:
            answer = await rig.sdk.embeddings.create(model=MODEL, input="one")
        assert answer.data[0].embedding == VECTORS[0]
