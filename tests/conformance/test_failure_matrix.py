"""Every engine against every way to break an answer: none of them ever looks like an answer that is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

import pytest

from tests.conformance.rig import ENGINES, MODEL, Rig, assert_openai_error, both_ways, engines_that, every_engine
from tests.conformance.test_failures import WORDS, assert_broken, chat_and_text, request
from tests.fakes.dialects.answer import Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import Dialect, DialectEngine
from tests.fakes.dialects.voice import Voice
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply
from tests.fakes.scripted import Body, Head, Request, Script, Step, end, eof, hang, head, rst, to_json

SO_FAR = "Hello, "
PATHS = ("/v1/chat/completions", "/v1/completions")
PRODUCT = [(path, stream) for path in PATHS for stream in (True, False)]
HUGE_BYTES = 4 * 1024 * 1024 + 1
MOST_BYTES = 16 * 1024 * 1024
"""What Weir keeps of one event or line."""
WRITE_BYTES = 256 * 1024

Fault = Callable[["Faulty", Script], Script]
"""What the engine does in place of its own script."""


class Faulty(DialectEngine):
    """A dialect whose answers are spoilt; its pages are not."""

    def __init__(self, dialect: Dialect, fault: Fault) -> None:
        super().__init__(dialect)
        self._fault = fault

    @property
    def voice(self) -> Voice:
        """The endpoint that the last request went to."""
        return self.dialect.voices[self.requests[-1].target]

    def script_for(self, request: Request) -> Script:
        script = super().script_for(request)
        return script if request.method == "GET" else self._fault(self, script)


@asynccontextmanager
async def behind_weir(name: str, fault: Fault, say: Say | None = None, **timeouts: str) -> AsyncGenerator[Rig]:
    """Weir and an engine with that fault."""
    async with Faulty(DIALECTS[name](say), fault) as engine:
        options = {"timeouts": timeouts}
        async with running_gateway(config(engine.endpoint, pool=MODEL, pool_options=options)) as weir:
            yield Rig(weir, engine)


def head_of(script: Script) -> Head:
    first = script[0]
    assert isinstance(first, Head)
    return first


def kind_of(script: Script) -> Literal["sse", "ndjson", "whole"]:
    """How the engine answers: it may have been asked for a stream without the client's wish."""
    told = next((value for name, value in head_of(script).headers if name.lower() == "content-type"), "")
    return "sse" if "event-stream" in told else "ndjson" if "ndjson" in told else "whole"


def framed(script: Script, payload: bytes) -> Body:
    """The payload as one frame of this stream; a whole answer has no frames."""
    match kind_of(script):
        case "sse":
            return Body(b"data: " + payload + b"\n\n")
        case "ndjson":
            return Body(payload + b"\n")
        case "whole":
            return Body(payload)


def instead(engine: Faulty, script: Script, *steps: Step) -> Script:
    """These steps in place of the break that a ``cut_after`` makes; a whole answer has half its body before them."""
    kept = script[1:-1] if engine.dialect.say.cut_after else ()
    return [replace(head_of(script), chunked=True, length_bytes=None), *kept, *steps]


def then(*steps: Step) -> Fault:
    return lambda engine, script: instead(engine, script, *steps)


def frame(payload: bytes) -> Fault:
    """A frame, and then the proper end of the body."""
    return lambda engine, script: instead(engine, script, framed(script, payload), end())


def long_line(size_bytes: int, ending: Step) -> Fault:
    """The start of a frame, and no end of it."""
    writes = [Body(b"a" * WRITE_BYTES)] * (size_bytes // WRITE_BYTES + 1)

    def fault(engine: Faulty, script: Script) -> Script:
        start = Body(b'data: {"' if kind_of(script) == "sse" else b'{"')
        return instead(engine, script, start, *writes, ending)

    return fault


def no_body(length_bytes: int | None, ending: Step) -> Fault:
    return lambda engine, script: [replace(head_of(script), chunked=False, length_bytes=length_bytes), ending]


endless = long_line(MOST_BYTES, hang())

PAGE = b"<html><h1>It works</h1></html>"
ANYWHERE: Mapping[str, Fault] = {
    "clean end": then(end()),
    "close": then(eof()),
    "reset": then(rst()),
    "end marker alone": frame(b"[DONE]"),
    "html": then(Body(b"<html><h1>502 Bad Gateway</h1></html>\n"), end()),
    "binary": then(Body(bytes(range(256)) * 8), end()),
    "no JSON": frame(b"{nonsense}"),
    "half a frame": then(Body(b'data: {"choices":[{"ind'), end()),
    "a number": frame(b"7"),
    "null": frame(b"null"),
    "a list": frame(b'[{"choices":[]}]'),
    "an empty object": frame(b"{}"),
    "no choices": frame(b'{"choices":[],"message":null,"response":null}'),
    "a number for a choice": frame(b'{"choices":[7]}'),
    "an empty choice": frame(b'{"choices":[{}]}'),
    "wrong types": frame(b'{"choices":{"0":1},"message":"no","response":[],"done":"yes"}'),
    "deep": frame(b"[" * 100_000),
    "huge line, end": long_line(HUGE_BYTES, end()),
    "huge line, close": long_line(HUGE_BYTES, eof()),
}
AT_FIRST: Mapping[str, Fault] = {
    **ANYWHERE,
    "a page of a proxy": lambda engine, script: [
        head(200, "html", length=len(PAGE)),
        Body(PAGE),
        end(),
    ],
    "no body": no_body(0, end()),
    "no body, by close": no_body(None, eof()),
}
ERROR_BODIES = (b"", b"<html>no</html>", b"\xff\x00", b"[]", b"null", b'"no"', b'{"error":', b'{"error":{"message":7}}')


TOLD: Mapping[int, tuple[int, ...]] = {
    400: (400,),
    401: (502,),
    403: (502,),
    404: (404,),
    413: (413,),
    422: (400, 422),
    429: (429,),
    500: (500, 502),
    503: (503,),
}
"""The status that a client may get for an engine's."""

ERRORS: Mapping[str, bytes] = {
    "object": to_json({"error": {"message": WORDS, "type": "server_error", "code": 500}}),
    "text": to_json({"error": WORDS, "error_type": "generation"}),
    "flat": to_json({"object": "error", "message": WORDS, "type": "InternalServerError", "code": 500}),
}
"""Errors in the words of one engine or another: a proxy before an engine may use any."""

any_words = pytest.mark.parametrize(
    ("name", "error"),
    # Nothing that is flat is seen before an Ollama, whose own lines are flat objects too
    [(name, error) for name in ENGINES for error in ERRORS if (name, error) != ("ollama", "flat")],
)


def assert_no_answer(reply: Reply, *statuses: int) -> dict[str, object]:
    """A status and an OpenAI error for it. Returns the error."""
    assert reply.status in statuses, reply.raw[:500]
    assert reply.whole
    return assert_openai_error(reply)


class TestBeforeTheFirstToken:
    @every_engine
    @pytest.mark.parametrize("fault", AT_FIRST)
    async def test_an_answer_that_breaks_at_once_is_a_bad_gateway(self, name: str, fault: str) -> None:
        async with behind_weir(name, AT_FIRST[fault], Say(cut_after=0)) as rig:
            for path, stream in PRODUCT:
                assert_no_answer(await rig.weir.post(request(path, stream=stream), path), 502)

    @every_engine
    @both_ways
    async def test_silence_is_a_timeout(self, name: str, stream: bool) -> None:
        async with behind_weir(name, then(hang()), Say(cut_after=0), first_token="0.3s", stall="0.3s") as rig:
            replies = await asyncio.gather(*[rig.weir.post(request(path, stream=stream), path) for path in PATHS])
        for reply in replies:
            assert_no_answer(reply, 504)

    @every_engine
    @both_ways
    @chat_and_text
    async def test_an_error_page_under_a_200_is_an_error_in_the_engines_words(
        self, name: str, path: str, stream: bool
    ) -> None:
        def page_in_200(engine: Faulty, _: Script) -> Script:
            script = engine.voice.failed(replace(engine.asks[-1], stream=False))
            return [replace(head_of(script), status=200), *script[1:]]

        async with behind_weir(name, page_in_200) as rig:
            reply = await rig.weir.post(request(path, stream=stream), path)
        assert WORDS in str(assert_no_answer(reply, 500, 502)["message"])

    @every_engine
    @chat_and_text
    async def test_an_error_as_the_first_frame_is_one_in_the_engines_words(self, name: str, path: str) -> None:
        def frame_in_200(engine: Faulty, script: Script) -> Script:
            return [head_of(script), *engine.voice.broken(engine.asks[-1])]

        async with behind_weir(name, frame_in_200, Say(cut_after=0)) as rig:
            reply = await rig.weir.post(request(path, stream=True), path)
        error = assert_no_answer(reply, 500, 502)
        if DIALECTS[name].tells_failures:
            assert WORDS in str(error["message"])

    @any_words
    @pytest.mark.parametrize("bare", [False, True], ids=["framed", "bare"])
    async def test_an_error_in_another_engines_words_is_told_in_them(self, name: str, error: str, bare: bool) -> None:
        def told(engine: Faulty, script: Script) -> Script:
            body = Body(ERRORS[error] + b"\n") if bare else framed(script, ERRORS[error])
            return instead(engine, script, body, end())

        async with behind_weir(name, told, Say(cut_after=0)) as rig:
            replies = [await rig.weir.post(request(path, stream=stream), path) for path, stream in PRODUCT]
        for reply in replies:
            assert WORDS in str(assert_no_answer(reply, 500, 502)["message"])

    @every_engine
    async def test_a_line_without_an_end_is_not_kept_for_ever(self, name: str) -> None:
        async with behind_weir(name, endless, Say(cut_after=0)) as rig:
            reply = await rig.weir.post(request("/v1/chat/completions", stream=True))
        assert str(MOST_BYTES) in str(assert_no_answer(reply, 502)["message"])

    @every_engine
    @pytest.mark.parametrize("status", TOLD)
    async def test_a_refusal_in_no_ones_words_is_an_error_all_the_same(self, name: str, status: int) -> None:
        bodies = iter(ERROR_BODIES)

        def refusal(_: Faulty, script: Script) -> Script:
            body = next(bodies)
            return [replace(head_of(script), status=status, chunked=False, length_bytes=len(body)), Body(body), end()]

        async with behind_weir(name, refusal) as rig:
            for _ in ERROR_BODIES:
                assert_no_answer(await rig.weir.post(request("/v1/chat/completions", stream=True)), *TOLD[status])


class TestInTheMiddle:
    @every_engine
    @pytest.mark.parametrize("fault", ANYWHERE)
    async def test_an_answer_that_breaks_never_looks_whole(self, name: str, fault: str) -> None:
        async with behind_weir(name, ANYWHERE[fault], Say(cut_after=2)) as rig:
            for path, stream in PRODUCT:
                reply = await rig.weir.post(request(path, stream=stream), path)
                if stream:
                    assert_broken(reply, SO_FAR)
                else:
                    assert_no_answer(reply, 502)

    @every_engine
    async def test_a_stall_ends_with_an_error(self, name: str) -> None:
        async with behind_weir(name, then(hang()), Say(cut_after=2), stall="1s") as rig:
            replies = await asyncio.gather(*[rig.weir.post(request(path, stream=True), path) for path in PATHS])
        for reply in replies:
            assert_broken(reply, SO_FAR)

    @every_engine
    async def test_a_whole_answer_that_stalls_is_a_timeout(self, name: str) -> None:
        async with behind_weir(name, then(hang()), Say(cut_after=2), first_token="0.3s", stall="0.3s") as rig:
            replies = await asyncio.gather(*[rig.weir.post(request(path, stream=False), path) for path in PATHS])
        for reply in replies:
            assert_no_answer(reply, 504)

    @every_engine
    @chat_and_text
    async def test_an_error_frame_is_an_error_event_in_the_engines_words(self, name: str, path: str) -> None:
        def fails(engine: Faulty, script: Script) -> Script:
            return [*script[:-1], *engine.voice.broken(engine.asks[-1])]

        async with behind_weir(name, fails, Say(cut_after=2)) as rig:
            reply = await rig.weir.post(request(path, stream=True), path)
        error = assert_broken(reply, SO_FAR)
        if DIALECTS[name].tells_failures:
            assert WORDS in str(error["message"])

    @any_words
    async def test_an_error_in_another_engines_words_is_told_in_them(self, name: str, error: str) -> None:
        def told(engine: Faulty, script: Script) -> Script:
            return instead(engine, script, framed(script, ERRORS[error]), end())

        async with behind_weir(name, told, Say(cut_after=2)) as rig:
            replies = [await rig.weir.post(request(path, stream=True), path) for path in PATHS]
        for reply in replies:
            assert WORDS in str(assert_broken(reply, SO_FAR)["message"])

    @every_engine
    async def test_a_line_without_an_end_is_not_kept_for_ever(self, name: str) -> None:
        async with behind_weir(name, endless, Say(cut_after=2)) as rig:
            reply = await rig.weir.post(request("/v1/chat/completions", stream=True))
        assert str(MOST_BYTES) in str(assert_broken(reply, SO_FAR)["message"])

    @every_engine
    @chat_and_text
    async def test_what_follows_nonsense_does_not_make_the_answer_whole(self, name: str, path: str) -> None:
        def nonsense(_: Faulty, script: Script) -> Script:
            return [script[0], script[1], framed(script, b"{nonsense}"), *script[2:]]

        async with behind_weir(name, nonsense) as rig:
            reply = await rig.weir.post(request(path, stream=True), path)
        assert not reply.done
        if reply.status == 200:
            assert reply.finishes() == []
            assert reply.stream_error is not None
        else:
            assert_no_answer(reply, 502)

    @engines_that(lambda dialect: dialect.choices is True)
    @both_ways
    async def test_an_answer_of_two_choices_is_not_whole_with_one(self, name: str, stream: bool) -> None:
        pieces = 2 * len(Say().text)
        async with behind_weir(name, frame(b"[DONE]"), Say(cut_after=pieces - 1)) as rig:
            reply = await rig.weir.post({**request("/v1/chat/completions", stream=stream), "n": 2})
        if not stream:
            assert_no_answer(reply, 502)
            return
        assert reply.status == 200
        assert not reply.done
        assert reply.stream_error is not None


def test_no_engine_is_left_out() -> None:
    assert set(ENGINES) == set(DIALECTS)
