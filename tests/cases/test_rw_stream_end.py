"""RW-07 and RW-08, stream-end: a broken answer never looks whole, and an error inside a 200 is an error."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.fakes.engines import ENGINES, WHOLE_ANSWER_ENGINES, spread
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0, t0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    chunk,
    completion,
    delta,
    done,
    end,
    eof,
    event,
    fin,
    head,
    json_answer,
    raw,
    role,
    rst,
    text,
    to_json,
    tok,
    usage,
)

BROKEN_AFTER_OUTPUT: dict[str, list[Step]] = {
    "end": [end()],
    "close": [eof()],
    "reset": [rst()],
    "DONE without a finish": [done(), end()],
    "usage and DONE without a finish": [usage(5, 1), done(), end()],
    "abort": [fin("abort"), usage(5, 1), done(), end()],
    "half an event, end": [raw(b'data: {"choices":[{"ind'), end()],
    "half an event, close": [raw(b'data: {"choices":[{"ind'), eof()],
}
BROKEN_BEFORE_OUTPUT: dict[str, list[Step]] = {
    "no head, close": [eof()],
    "no head, reset": [rst()],
    "no event, end": [head(200, "sse"), end()],
    "no event, close": [head(200, "sse"), eof()],
    "no event, reset": [head(200, "sse"), rst()],
    "role, end": [head(200, "sse"), role(), end()],
    "role, close": [head(200, "sse"), role(), eof()],
    "role, reset": [head(200, "sse"), role(), rst()],
    "role and DONE": [head(200, "sse"), role(), done(), end()],
    "DONE alone": [head(200, "sse"), done(), end()],
    "comment, end": [head(200, "sse"), raw(b": ping\n\n"), end()],
    "role and abort": [head(200, "sse"), role(), fin("abort"), done(), end()],
    "not an event stream": [head(200, "sse"), raw(b"<html>proxy</html>\n\n"), end()],
}


async def read_all(sdk: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    async for _ in await sdk.chat.completions.create(model="m", messages=messages, stream=True):
        pass


async def assert_sdk_raises(gateway: RunningGateway, message: str = "") -> None:
    """The official client tells its user that the answer is broken."""
    with pytest.raises(openai.APIError) as raised:
        await read_all(gateway.sdk())
    assert message in str(raised.value)


def assert_broken_off(reply: Reply, content: str) -> dict[str, Any]:
    """The partial text came, then an error event as the last one, and nothing that looks like an end."""
    assert reply.status == 200
    assert reply.content() == content
    assert reply.finishes() == []
    assert not reply.done
    assert reply.stream_error is not None
    assert "error" in reply.chunks[-1]
    error = reply.stream_error
    assert error["message"]
    assert {"message", "type", "code", "param", "weir"} <= error.keys()
    assert {"stage", "endpoint", "retryable", "request_id"} <= error["weir"].keys()
    assert error["weir"]["request_id"] == reply.header("x-request-id")
    return error


def assert_error(reply: Reply, status: int | None = None) -> dict[str, Any]:
    """A JSON error with a real status."""
    assert reply.status == status if status else reply.status >= 400
    assert reply.header("content-type") == "application/json"
    error = reply.error
    assert {"message", "type", "code", "param", "weir"} <= error.keys()
    return error


@pytest.mark.parametrize(("ending", "engine"), spread([*BROKEN_AFTER_OUTPUT, "end", "close", "reset"]))
async def test_rw_07_an_answer_that_breaks_off_ends_with_an_error_event(engine: str, ending: str) -> None:
    script = [head(200, "sse"), role(), tok("par"), *BROKEN_AFTER_OUTPUT[ending]]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        assert_broken_off(await gw.post(r0()), "par")
        assert len(u.requests) == 1
        metrics = await gw.outcome("upstream_error")
        assert metrics.total("weir_requests_total") == 1
        await assert_sdk_raises(gw)


@pytest.mark.parametrize("ending", ["end", "close", "reset", "DONE without a finish", "half an event, end"])
async def test_rw_07_a_broken_completions_stream_ends_with_an_error_event(ending: str) -> None:
    script = [head(200, "sse"), text("par"), *BROKEN_AFTER_OUTPUT[ending]]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        assert_broken_off(await gw.post(t0(), "/v1/completions"), "par")
        await gw.outcome("upstream_error", operation="text_completion")


async def test_rw_07_the_tokens_of_a_broken_answer_are_counted() -> None:
    script = [head(200, "sse"), role(), tok("par"), tok("tial"), rst()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0())
        metrics = await gw.outcome("upstream_error")
        assert metrics.total("weir_tokens_total", type="output") > 0


@pytest.mark.parametrize(("ending", "engine"), spread(BROKEN_BEFORE_OUTPUT))
async def test_rw_07_a_stream_that_ends_before_any_output_is_a_502(engine: str, ending: str) -> None:
    async with (
        ScriptedUpstream(BROKEN_BEFORE_OUTPUT[ending]) as u,
        running_gateway(config(u.url, engine=engine)) as gw,
    ):
        assert_error(await gw.post(r0()), 502)
        await gw.outcome("upstream_error")
        await assert_sdk_raises(gw)


@pytest.mark.parametrize("ending", BROKEN_BEFORE_OUTPUT)
async def test_rw_07_a_stream_that_ends_before_any_output_is_served_elsewhere(ending: str) -> None:
    async with (
        ScriptedUpstream(BROKEN_BEFORE_OUTPUT[ending]) as bad,
        ScriptedUpstream(chat_stream("ab")) as good,
        running_gateway(config(bad.url, good.url)) as gw,
    ):
        for _ in range(6):
            reply = await gw.post(r0())
            assert reply.status == 200
            assert reply.content() == "ab"
            assert reply.done
        assert bad.requests
        await gw.outcome("ok", 6)


async def test_rw_07_a_finished_answer_of_an_engine_that_sends_no_end_marker_is_whole() -> None:
    """What is a finished answer? A finish reason of the engine's own accord; the marker alone proves nothing."""
    script = [head(200, "sse"), role(), tok("a"), fin("stop"), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine="openai")) as gw:
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert reply.finishes() == ["stop"]
        assert reply.done
        await gw.outcome("ok")


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter", "function_call"])
async def test_rw_07_every_finish_of_the_engines_own_accord_is_whole(reason: str) -> None:
    async with ScriptedUpstream(chat_stream("ab", finish=reason)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.finishes() == [reason]
        assert reply.done


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_07_an_empty_answer_with_a_finish_is_whole(engine: str) -> None:
    script = [head(200, "sse"), role(), fin("stop"), usage(5, 0), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0())
        assert reply.status == 200
        assert reply.finishes() == ["stop"]
        assert reply.done
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_time_to_first_token_seconds_count") == 0


WHOLE = to_json(completion("ab"))
BROKEN_WHOLE: dict[str, list[Step]] = {
    "no head, close": [eof()],
    "no head, reset": [rst()],
    "half the length, close": [head(200, "json", length=len(WHOLE)), raw(WHOLE[:60]), eof()],
    "half the length, reset": [head(200, "json", length=len(WHOLE)), raw(WHOLE[:60]), rst()],
    "all but the last chunk, close": [head(200, "json"), raw(WHOLE), eof()],
    "half, proper end": [head(200, "json"), raw(WHOLE[:60]), end()],
    "empty": [head(200, "json", length=0), end()],
    "HTML": [head(200, "html"), raw(b"<html>proxy</html>"), end()],
    "a list": [head(200, "json"), raw(b"[]"), end()],
    "no choices": [head(200, "json"), raw(b"{}"), end()],
}


@pytest.mark.parametrize(("ending", "engine"), spread(BROKEN_WHOLE, WHOLE_ANSWER_ENGINES))
async def test_rw_07_a_broken_whole_answer_is_a_502(engine: str, ending: str) -> None:
    async with ScriptedUpstream(BROKEN_WHOLE[ending]) as u, running_gateway(config(u.url, engine=engine)) as gw:
        assert_error(await gw.post(r0(stream=False)), 502)
        await gw.outcome("upstream_error")


@pytest.mark.parametrize("ending", BROKEN_AFTER_OUTPUT)
async def test_rw_07_a_whole_answer_is_never_put_together_from_a_broken_stream(ending: str) -> None:
    script = [head(200, "sse"), role(), tok("par"), *BROKEN_AFTER_OUTPUT[ending]]
    async with (
        ScriptedUpstream(lambda r: script if r.asked_for_stream else [eof()]) as u,
        running_gateway(config(u.url, engine="llamacpp")) as gw,
    ):
        assert_error(await gw.post(r0(stream=False)), 502)
        await gw.outcome("upstream_error")


MESSAGE = "ctx too long"
ERRORS: dict[str, tuple[dict[str, Any], int]] = {
    "code 400": ({"error": {"message": MESSAGE, "code": 400}}, 400),
    "code 404": ({"error": {"message": MESSAGE, "type": "NotFoundError", "param": "model", "code": 404}}, 404),
    "code 429": ({"error": {"message": MESSAGE, "code": 429}}, 429),
    "code 500": ({"error": {"message": MESSAGE, "type": "InternalServerError", "param": None, "code": 500}}, 502),
    "code 503": ({"error": {"message": MESSAGE, "type": "Service Unavailable", "code": 503}}, 503),
    "code as text": ({"error": {"message": MESSAGE, "code": "400"}}, 400),
    "a name for a code": ({"error": {"message": MESSAGE, "code": "context_length_exceeded"}}, 502),
    "code out of range": ({"error": {"message": MESSAGE, "code": 200}}, 502),
    "no code": ({"error": {"message": MESSAGE}}, 502),
    "a string": ({"error": MESSAGE}, 502),
    "SGLang": ({"error": {"object": "error", "message": MESSAGE, "type": "SERVICE_UNAVAILABLE", "code": 503}}, 503),
}
STATUS_OF_500 = (500, 502)


def assert_status(reply: Reply, status: int) -> None:
    """An engine's own 500 may be passed on or become a 502; everything else is exact."""
    if status == 502:
        assert reply.status in STATUS_OF_500
    else:
        assert reply.status == status


@pytest.mark.parametrize(("form", "engine"), spread(ERRORS))
@pytest.mark.parametrize("marker", [True, False], ids=["with DONE", "without DONE"])
async def test_rw_08_an_error_as_the_first_event_becomes_a_status(engine: str, form: str, marker: bool) -> None:
    payload, status = ERRORS[form]
    script = [head(200, "sse"), event(payload), *([done()] if marker else []), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0())
        assert_status(reply, status)
        assert MESSAGE in assert_error(reply)["message"]
        await assert_sdk_raises(gw, MESSAGE)
        metrics = await gw.at_rest()
        assert metrics.total("weir_requests_total", outcome="ok") == 0


@pytest.mark.parametrize("prelude", ["role", "comment", "empty content"])
async def test_rw_08_an_error_before_any_output_becomes_a_status_too(prelude: str) -> None:
    before = {"role": role(), "comment": raw(b": ping\n\n"), "empty content": delta({"content": ""})}[prelude]
    script = [head(200, "sse"), before, event({"error": {"message": MESSAGE, "code": 400}}), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert MESSAGE in assert_error(reply, 400)["message"]


@pytest.mark.parametrize(
    "spelling",
    [b"event: error\ndata: %b\n\n", b"data:%b\n\n", b"%b\n\n", b"%b\n", b"%b", b"error: %b\n\n", b"data: %b"],
)
async def test_rw_08_an_error_is_seen_however_it_is_framed(spelling: bytes) -> None:
    body = spelling % to_json({"error": {"message": MESSAGE, "code": 400}})
    async with ScriptedUpstream([head(200, "sse"), raw(body), end()]) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert MESSAGE in assert_error(reply)["message"]
        assert reply.status in (400, 502)


@pytest.mark.parametrize("form", ERRORS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_rw_08_a_json_error_in_a_200_becomes_a_status(form: str, stream: bool) -> None:
    payload, status = ERRORS[form]
    async with ScriptedUpstream(json_answer(payload)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=stream))
        assert_status(reply, status)
        assert MESSAGE in assert_error(reply)["message"]
        metrics = await gw.at_rest()
        assert metrics.total("weir_requests_total", outcome="ok") == 0
        with pytest.raises(openai.APIStatusError, match=MESSAGE):
            await gw.sdk().chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(("form", "engine"), spread(ERRORS))
@pytest.mark.parametrize("marker", [True, False], ids=["with DONE", "without DONE"])
async def test_rw_08_an_error_in_mid_stream_is_an_error_event_and_the_end(engine: str, form: str, marker: bool) -> None:
    payload, status = ERRORS[form]
    script = [head(200, "sse"), role(), tok("a"), tok("b"), event(payload), *([done()] if marker else []), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        error = assert_broken_off(await gw.post(r0()), "ab")
        assert MESSAGE in error["message"]
        if status == 502:
            await gw.outcome("upstream_error")
        metrics = await gw.settled(lambda m: m.total("weir_requests_total") == 1)
        assert metrics.total("weir_requests_total", outcome="ok") == 0
        await assert_sdk_raises(gw, MESSAGE)


async def test_rw_08_tokens_after_an_error_are_not_passed_on() -> None:
    script = [head(200, "sse"), role(), tok("a"), event({"error": {"message": MESSAGE}}), tok("b"), fin("stop"), done()]
    async with ScriptedUpstream([*script, end()]) as u, running_gateway(config(u.url)) as gw:
        assert_broken_off(await gw.post(r0()), "a")


async def test_rw_08_an_error_beside_empty_choices_is_an_error() -> None:
    script = [head(200, "sse"), event(chunk([], error={"message": MESSAGE, "code": 503})), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        assert MESSAGE in assert_error(await gw.post(r0()), 503)["message"]


async def test_rw_08_the_word_error_in_the_text_and_a_null_error_are_no_error() -> None:
    content = '{"error":{"message":"x"}}'
    script: Script = [
        head(200, "sse"),
        event(
            chunk([{"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": None}], error=None)
        ),
        fin("stop"),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.content() == content
        assert reply.done


async def test_rw_08_an_overload_in_the_first_frame_is_served_elsewhere() -> None:
    """vLLM checks its queue twice; the second refusal comes as a 200."""
    busy = [head(200, "sse"), event({"error": {"message": "full", "code": 503}}), done(), end()]
    async with (
        ScriptedUpstream(busy) as full,
        ScriptedUpstream(chat_stream("ab")) as free,
        running_gateway(config(full.url, free.url)) as gw,
    ):
        for _ in range(6):
            reply = await gw.post(r0())
            assert reply.content() == "ab"
            assert reply.done
        assert full.requests
