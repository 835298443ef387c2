"""RW-25 and RW-26: one answer is never glued to another, and in-flight counts come back to zero."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.fakes.engines import WHOLE_ANSWER_ENGINES, spread
from tests.fakes.gateway import Metrics, RunningGateway, config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    completion,
    done,
    end,
    eof,
    event,
    hang,
    head,
    in_turn,
    json_answer,
    raw,
    role,
    rst,
    to_json,
    tok,
    unused_port,
    wire,
)

CHAT = "/v1/chat/completions"
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}

AFTER_OUTPUT: dict[str, list[Step]] = {
    "reset": [rst()],
    "close": [eof()],
    "end": [end()],
    "DONE without a finish": [done(), end()],
    "error event": [event(FAILED), done(), end()],
}
BEFORE_OUTPUT: dict[str, list[Step]] = {
    "reset before the head": [rst()],
    "close before the head": [eof()],
    "500": json_answer(FAILED, 500),
    "502": json_answer(FAILED, 502),
    "503": json_answer(FAILED, 503),
    "429": json_answer(FAILED, 429),
    "reset after the head": [head(200, "sse"), rst()],
    "end after the head": [head(200, "sse"), end()],
    "reset after the role": [head(200, "sse"), role(), rst()],
    "end after the role": [head(200, "sse"), role(), end()],
    "error event first": [head(200, "sse"), event(FAILED), done(), end()],
    "error event after the role": [head(200, "sse"), role(), event(FAILED), end()],
    "error in a JSON 200": json_answer(FAILED),
    "not HTTP": [wire(b"NONSENSE\r\n\r\n"), eof()],
}


@pytest.mark.parametrize(("ending", "engine"), spread(AFTER_OUTPUT))
async def test_rw_25_after_output_no_second_answer_is_begun(engine: str, ending: str) -> None:
    answers = in_turn([head(200, "sse"), role(), tok("Hel"), *AFTER_OUTPUT[ending]], chat_stream("Hello"))
    async with (
        ScriptedUpstream(answers) as u1,
        ScriptedUpstream(answers) as u2,
        running_gateway(config(u1.url, u2.url, engine=engine)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "Hel"
        assert reply.stream_error is not None
        assert not reply.done
        await gw.at_rest()
        assert len(u1.requests + u2.requests) == 1


@pytest.mark.parametrize(("ending", "engine"), spread(BEFORE_OUTPUT))
async def test_rw_25_before_output_one_retry_gives_one_clean_answer(engine: str, ending: str) -> None:
    answers = in_turn(BEFORE_OUTPUT[ending], chat_stream("Hello"))
    async with (
        ScriptedUpstream(answers) as u1,
        ScriptedUpstream(answers) as u2,
        running_gateway(config(u1.url, u2.url, engine=engine)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status == 200
        assert reply.content() == "Hello"
        assert reply.finishes() == ["stop"]
        assert reply.done
        assert sum(choice["delta"].get("role") == "assistant" for choice in reply.choices()) == 1
        assert len({piece["id"] for piece in reply.chunks}) == 1
        assert reply.header("x-weir-attempts") == "2"
        assert (len(u1.requests), len(u2.requests)) == (1, 1), "the retry goes to the other endpoint"
        await gw.outcome("ok")
        assert await gw.total("weir_requests_total") == 1


@pytest.mark.parametrize(
    ("ending", "engine"),
    spread(["reset before the head", "500", "503", "error in a JSON 200", "half a body"], WHOLE_ANSWER_ENGINES),
)
async def test_rw_25_a_whole_answer_is_tried_again_too(engine: str, ending: str) -> None:
    half = [head(200, "json"), raw(to_json(completion("Hello"))[:50]), rst()]
    answers = in_turn(BEFORE_OUTPUT.get(ending, half), json_answer(completion("Hello")))
    async with (
        ScriptedUpstream(answers) as u1,
        ScriptedUpstream(answers) as u2,
        running_gateway(config(u1.url, u2.url, engine=engine)) as gw,
    ):
        reply = await gw.post(r0(stream=False))
        assert reply.status == 200
        assert reply.json() == completion("Hello") | {"model": "m"}
        assert (len(u1.requests), len(u2.requests)) == (1, 1)


async def test_rw_25_a_refused_connection_is_tried_elsewhere() -> None:
    async with (
        ScriptedUpstream(chat_stream("Hello")) as u,
        running_gateway(config(f"http://127.0.0.1:{unused_port()}", u.url)) as gw,
    ):
        for _ in range(8):
            assert (await gw.post(r0())).content() == "Hello"


async def test_rw_25_attempts_are_bounded() -> None:
    async with (
        ScriptedUpstream(json_answer(FAILED, 500)) as u1,
        ScriptedUpstream(json_answer(FAILED, 500)) as u2,
        ScriptedUpstream(json_answer(FAILED, 500)) as u3,
        ScriptedUpstream(json_answer(FAILED, 500)) as u4,
        running_gateway(config(u1.url, u2.url, u3.url, u4.url)) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status in (500, 502)
        assert "engine trouble" in reply.error["message"]
        assert reply.header("x-weir-attempts") == "3"
        counts = [len(u.requests) for u in (u1, u2, u3, u4)]
        assert sorted(counts) == [0, 1, 1, 1]


async def test_rw_25_one_attempt_can_be_configured() -> None:
    options = {"retries": {"attempts": 1}}
    answers = in_turn(json_answer(FAILED, 500), chat_stream("Hello"))
    async with (
        ScriptedUpstream(answers) as u1,
        ScriptedUpstream(answers) as u2,
        running_gateway(config(u1.url, u2.url, pool_options=options)) as gw,
    ):
        assert (await gw.post(r0())).status in (500, 502)
        assert len(u1.requests + u2.requests) == 1


GAUGE = "weir_endpoint_in_flight"
QUICK_RETURN = {"interval": "20ms", "timeout": "20s", "eject": "10ms", "eject_max": "20ms"}
BAD_KINDS = ("reset", "500", "client leaves", "timeout", "error event", "reset after output")
QUICK_KINDS = tuple(kind for kind in BAD_KINDS if kind != "timeout")
BAD_ORDER = (*BAD_KINDS, *QUICK_KINDS * 4, *BAD_KINDS)
"""What befalls the first requests: a time-out is long, for good answers must not meet it, so there are two."""
BAD: dict[str, list[Step]] = {
    "reset": [rst()],
    "500": json_answer(FAILED, 500),
    "client leaves": [head(200, "sse"), role(), hang()],
    "timeout": [head(200, "sse"), hang()],
    "error event": [head(200, "sse"), event(FAILED), end()],
    "reset after output": [head(200, "sse"), role(), tok("a"), rst()],
}


def assert_never_negative(metrics: Metrics) -> None:
    assert all(value >= 0 for value in metrics.values(GAUGE)), metrics.text


async def one_request(gateway: RunningGateway, leave_when: Callable[[], bool]) -> None:
    """One request to its end, or until its client has a reason to leave."""
    async with gateway.connect() as connection:
        await connection.send(request_bytes("POST", CHAT, r0()))
        reading = asyncio.ensure_future(connection.reply())
        while not reading.done() and not leave_when():
            await asyncio.wait([reading], timeout=0.005)
        if not reading.cancel():
            reading.result()


async def all_bad_requests(gateway: RunningGateway, u1: ScriptedUpstream, kinds: list[str]) -> None:
    for _ in range(400):
        if len(kinds) >= len(BAD_ORDER):
            return
        had = len(kinds)

        def client_leaves(had: int = had) -> bool:
            return len(kinds) > had and kinds[-1] == "client leaves"

        await one_request(gateway, client_leaves)
        assert_never_negative(await gateway.metrics())
    pytest.fail(f"U1 got {len(u1.requests)} of {len(BAD_ORDER)} bad requests: it is not tried again after an ejection")


@pytest.mark.parametrize("at_once", [1, 8])
async def test_rw_26_after_every_kind_of_failure_counts_are_zero_and_the_load_is_even(at_once: int) -> None:
    kinds: list[str] = []
    good = chat_stream("ab")

    def sometimes_bad(_: Request) -> Script:
        if len(kinds) >= len(BAD_ORDER):
            return good
        kinds.append(BAD_ORDER[len(kinds)])
        return BAD[kinds[-1]]

    options = {"timeouts": {"first_token": "2s"}, "health": QUICK_RETURN}
    async with (
        ScriptedUpstream(sometimes_bad) as u1,
        ScriptedUpstream(good) as u2,
        running_gateway(config(u1.url, u2.url, pool_options=options)) as gw,
    ):
        await all_bad_requests(gw, u1, kinds)
        metrics = await gw.at_rest()
        assert len(metrics.values(GAUGE)) == 2
        while (await gw.metrics()).values("weir_endpoint_healthy") != [1, 1]:
            assert (await gw.post(r0())).content() == "ab"  # a request on trial brings an endpoint back
        before = (len(u1.requests), len(u2.requests))
        for _ in range(0, 40, at_once):
            replies = await asyncio.gather(*(gw.post(r0()) for _ in range(at_once)))
            assert all(reply.content() == "ab" for reply in replies)
        shares = (len(u1.requests) - before[0], len(u2.requests) - before[1])
        assert sum(shares) == 40
        assert min(shares) >= 8, shares
        assert_never_negative(await gw.at_rest())


@pytest.mark.parametrize("kind", BAD_KINDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_rw_26_each_kind_of_failure_gives_back_what_it_took(kind: str, stream: bool) -> None:
    options = {"timeouts": {"first_token": "150ms", "total": "300ms"} if kind == "timeout" else {}}
    async with ScriptedUpstream(BAD[kind]) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        for round_ in range(3):
            async with gw.connect() as connection:
                await connection.send(request_bytes("POST", CHAT, r0(stream=stream)))
                if kind == "client leaves":
                    await u.arrived(round_ + 1)
                else:
                    await connection.reply()
        assert_never_negative(await gw.at_rest())
        metrics = await gw.settled(lambda m: m.total("weir_requests_total") == 3)
        assert metrics.total("weir_requests_total", outcome="internal_error") == 0


async def test_rw_26_the_gauge_shows_what_is_open_now() -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u,
        running_gateway(config(u.url)) as gw,
    ):
        async with gw.connect() as first, gw.connect() as second:
            for connection in (first, second):
                await connection.send(request_bytes("POST", CHAT, r0()))
                await connection.read_until(b'"content":"a"')
            assert await gw.total(GAUGE) == 2
            first.close()
            await gw.settled(lambda m: m.total(GAUGE) == 1)
        await gw.at_rest()


async def test_rw_26_ties_do_not_always_go_to_the_first_endpoint() -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u1,
        ScriptedUpstream(chat_stream("ab")) as u2,
        ScriptedUpstream(chat_stream("ab")) as u3,
        running_gateway(config(u1.url, u2.url, u3.url)) as gw,
    ):
        for _ in range(45):
            await gw.post(r0())
        assert min(len(u.requests) for u in (u1, u2, u3)) >= 5
