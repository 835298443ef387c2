"""Failures: whichever way the engine tells of them, the client learns of them in OpenAI's way, and in time."""

from __future__ import annotations

import openai
import pytest

from tests.conformance.rig import MODEL, assert_openai_error, behind_weir, both_ways, engines_that, every_engine
from tests.fakes.dialects.answer import Busy, Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import serving
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, r0, t0

WORDS = "the engine's own words"

chat_and_text = pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"], ids=["chat", "text"])


def request(path: str, *, stream: bool) -> dict[str, object]:
    return (r0 if path == "/v1/chat/completions" else t0)(stream=stream)


def assert_broken(reply: Reply, text: str) -> dict[str, object]:
    """The text so far, then an error event, and no end marker. Returns the error."""
    assert reply.status == 200
    assert reply.whole
    assert not reply.done
    assert "".join(c.get("delta", c).get("content") or c.get("text") or "" for c in reply.choices()) == text
    assert reply.finishes() == []
    assert "error" in reply.chunks[-1]
    error = reply.stream_error
    assert error is not None
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert isinstance(error["code"], str)
    return error


class TestBeforeTheFirstToken:
    @every_engine
    @both_ways
    @chat_and_text
    async def test_a_failure_is_a_status(self, name: str, path: str, stream: bool) -> None:
        async with behind_weir(name, Say(fails_after=0)) as rig:
            reply = await rig.weir.post(request(path, stream=stream), path)
        assert reply.status in (500, 502)
        error = assert_openai_error(reply)
        if DIALECTS[name].tells_failures or not stream:
            assert WORDS in error["message"]

    @every_engine
    @both_ways
    async def test_the_sdk_raises(self, name: str, stream: bool) -> None:
        async with behind_weir(name, Say(fails_after=0)) as rig:
            with pytest.raises(openai.InternalServerError):
                await rig.sdk.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=stream
                )

    @every_engine
    @both_ways
    @chat_and_text
    async def test_a_cut_connection_is_a_bad_gateway(self, name: str, path: str, stream: bool) -> None:
        async with behind_weir(name, Say(cut_after=0)) as rig:
            reply = await rig.weir.post(request(path, stream=stream), path)
        assert reply.status == 502
        assert assert_openai_error(reply)["weir"]["retryable"] is True

    @every_engine
    async def test_another_engine_answers_instead(self, name: str) -> None:
        dialect = DIALECTS[name]
        async with (
            serving(dialect(Say(fails_after=0))) as bad,
            serving(dialect()) as good,
            running_gateway(config(bad.endpoint, good.endpoint, pool=MODEL)) as weir,
        ):
            replies = [await weir.post(r0()) for _ in range(3)]
        assert all(reply.done and reply.finishes() == ["stop"] for reply in replies)
        assert bad.requests


class TestInTheMiddle:
    @every_engine
    @chat_and_text
    @pytest.mark.parametrize("say", [Say(fails_after=2), Say(cut_after=2)], ids=["failure", "cut"])
    async def test_half_an_answer_is_none_without_a_stream(self, name: str, path: str, say: Say) -> None:
        async with behind_weir(name, say) as rig:
            reply = await rig.weir.post(request(path, stream=False), path)
        assert reply.status in (500, 502)
        assert_openai_error(reply)

    @every_engine
    @chat_and_text
    async def test_a_failure_is_an_error_event_and_no_end(self, name: str, path: str) -> None:
        async with behind_weir(name, Say(fails_after=2)) as rig:
            reply = await rig.weir.post(request(path, stream=True), path)
        error = assert_broken(reply, "Hello, ")
        if DIALECTS[name].tells_failures:
            assert WORDS in str(error["message"])

    @every_engine
    @chat_and_text
    async def test_a_cut_is_an_error_event_and_no_end(self, name: str, path: str) -> None:
        async with behind_weir(name, Say(cut_after=2)) as rig:
            reply = await rig.weir.post(request(path, stream=True), path)
        assert_broken(reply, "Hello, ")

    @every_engine
    @pytest.mark.parametrize("say", [Say(fails_after=1), Say(cut_after=1)], ids=["failure", "cut"])
    async def test_the_sdk_raises(self, name: str, say: Say) -> None:
        async with behind_weir(name, say) as rig:
            stream = await rig.sdk.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
            )
            with pytest.raises(openai.APIError):
                [chunk async for chunk in stream]

    @engines_that(lambda dialect: dialect.aborts)
    @chat_and_text
    async def test_an_answer_that_the_engine_aborted_is_not_whole(self, name: str, path: str) -> None:
        async with behind_weir(name, Say(finish="abort")) as rig:
            reply = await rig.weir.post(request(path, stream=True), path)
            whole = await rig.weir.post(request(path, stream=False), path)
        assert not reply.done
        assert reply.stream_error is not None
        assert reply.finishes() == []
        assert whole.status == 502
        assert_openai_error(whole)


class TestOverload:
    @engines_that(lambda dialect: dialect.refuses_when_full)
    @both_ways
    @chat_and_text
    @pytest.mark.parametrize("busy", ["refused", "late"])
    async def test_it_is_said_so(self, name: str, path: str, stream: bool, busy: Busy) -> None:
        async with behind_weir(name, Say(busy=busy)) as rig:
            reply = await rig.weir.post(request(path, stream=stream), path)
        assert reply.status in (429, 503)
        error = assert_openai_error(reply)
        assert error["code"] == "engine_busy"
        assert error["weir"]["retryable"] is True

    @engines_that(lambda dialect: dialect.refuses_when_full)
    @both_ways
    async def test_another_engine_answers_instead(self, name: str, stream: bool) -> None:
        dialect = DIALECTS[name]
        async with (
            serving(dialect(Say(busy="late"))) as full,
            serving(dialect()) as free,
            running_gateway(config(full.endpoint, free.endpoint, pool=MODEL)) as weir,
        ):
            replies = [await weir.post(r0(stream=stream)) for _ in range(3)]
        assert [reply.status for reply in replies] == [200] * 3
        assert full.requests


class TestUnknownModel:
    @every_engine
    @both_ways
    async def test_a_name_without_a_pool_is_not_found(self, name: str, stream: bool) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(model="mm", stream=stream))
        assert reply.status == 404
        assert assert_openai_error(reply)["code"] == "model_not_found"
        assert rig.engine.requests == []

    @engines_that(lambda dialect: dialect.refuses_models)
    @both_ways
    async def test_a_model_that_the_engine_has_not_is_the_engines_404(self, name: str, stream: bool) -> None:
        async with (
            serving(DIALECTS[name]()) as engine,
            running_gateway(config({**engine.endpoint, "model": "nope"}, pool=MODEL)) as weir,
        ):
            reply = await weir.post(r0(stream=stream))
        assert reply.status == 404
        assert "nope" in assert_openai_error(reply)["message"]


class TestBadRequests:
    """The client's own mistakes, which are never the engine's failure."""

    @every_engine
    @both_ways
    @chat_and_text
    async def test_a_wrong_type_is_the_clients_mistake(self, name: str, path: str, stream: bool) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post({**request(path, stream=stream), "temperature": "warm"}, path)
        assert reply.status in (400, 422), reply.body
        assert assert_openai_error(reply)["weir"]["retryable"] is False

    @every_engine
    @both_ways
    async def test_a_value_out_of_bounds_is_too_unless_the_engine_takes_it(self, name: str, stream: bool) -> None:
        async with behind_weir(name) as rig:
            reply = await rig.weir.post(r0(stream=stream, temperature=-1))
        if reply.status == 200:
            assert dict(rig.engine.asks[-1].sampling).get("temperature", 1) in (-1, 0, 1)
            return
        assert reply.status in (400, 422), reply.body
        assert assert_openai_error(reply)["weir"]["retryable"] is False


@every_engine
async def test_a_body_that_is_not_json_is_refused_by_weir(name: str) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(b'{"model":"m","messages":[')
    assert reply.status == 400
    assert_openai_error(reply)
    assert rig.engine.requests == []
