"""However a request ends, its record is closed once, and says how."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.fakes.flights import watched_flights
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import RawConnection, r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    eventually,
    flood,
    hang,
    head,
    json_answer,
    raw,
    role,
    rst,
    silent_listener,
    tok,
    unused_port,
)
from tests.fakes.slow_client import connect_slow

CHAT = "/v1/chat/completions"
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}

ENDINGS: dict[str, tuple[Script, str, str | None, int]] = {
    "ok": (chat_stream(), "ok", None, 200),
    "the client's error": (json_answer(FAILED, 400), "client_error", None, 400),
    "busy": (json_answer(FAILED, 503), "shed", "503", 503),
    "engine error": (json_answer(FAILED, 500), "upstream_error", "500", 500),
    "credential": (json_answer(FAILED, 401), "upstream_error", "401", 502),
    "reset": ([rst()], "upstream_error", "reset", 502),
    "broken after output": ([head(200, "sse"), tok("a"), rst()], "upstream_error", "truncated_stream", 200),
    "no first token": ([head(200, "sse"), hang()], "timeout", "first_token_timeout", 504),
    "a stall": ([head(200, "sse"), tok("a"), hang()], "timeout", "stall_timeout", 200),
}
WAITED_OUT = {"no first token": {"first_token": "60ms"}, "a stall": {"stall": "60ms"}}
"""Timeouts of the endings that come by one."""


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_stream_is_closed_once(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    script, outcome, error_type, status = ENDINGS[ending]
    options = {"timeouts": WAITED_OUT.get(ending, {})}
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, pool_options=options)) as gw:
        reply = await gw.post(r0())
        record = await flights.ended()
        assert reply.status == record.status == status
        assert (record.outcome, record.error_type) == (outcome, error_type)
        assert [attempt.outcome for attempt in record.attempts] == [outcome]
        assert record.done_s is not None
        assert await gw.total("weir_requests_total", outcome=outcome) == 1


WHOLE: dict[str, tuple[Script, str, int]] = {
    "ok": (json_answer(completion()), "ok", 200),
    "the client's error": (json_answer(FAILED, 422), "client_error", 422),
    "engine error": (json_answer(FAILED, 502), "upstream_error", 502),
    "no answer at all": (json_answer(b"nonsense"), "upstream_error", 502),
}


@pytest.mark.parametrize("ending", WHOLE)
async def test_a_whole_answer_is_closed_once(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    script, outcome, status = WHOLE[ending]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0(stream=False))).status == status
        record = await flights.ended()
        assert (record.outcome, record.status) == (outcome, status)


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{", CHAT, 400),
        ({"model": "unknown", "messages": []}, CHAT, 404),
        ({"model": "m"}, CHAT, 400),
        ({"model": "unknown"}, "/v1/rerank", 404),
    ],
)
async def test_a_request_that_reaches_no_engine_is_closed_once(
    body: object, path: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = watched_flights(monkeypatch)
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        assert (await gw.post(body, path)).status == status
        record = await flights.ended()
        assert (record.outcome, record.status, record.attempts) == ("client_error", status, [])


async def test_no_record_is_kept_of_what_is_no_request_to_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        for path in ("/health", "/v1/models", "/v1/models/m", "/metrics", "/nonsense"):
            await gw.get(path)
        assert flights.opened == []


async def test_a_pool_that_takes_nothing_is_closed_as_shed(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)

    def nobody(*_: object) -> None:
        return None

    monkeypatch.setattr("gateway.pool.Pool.choose", nobody)
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.post(r0())
        assert (reply.status, reply.error["code"]) == (503, "no_endpoint")
        assert reply.header("retry-after") is not None
        record = await flights.ended()
        assert (record.outcome, record.error_type) == ("shed", "shed")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_fault_of_ours_is_closed_as_one(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)

    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("gateway.endpoint.Endpoint.wire", broken)
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        reply = await gw.post(r0(stream=stream))
        assert reply.status == 500
        record = await flights.ended()
        assert (record.outcome, record.error_type) == ("internal_error", "internal")


# --- the client leaves, in every phase

Leave = Callable[[RunningGateway, ScriptedUpstream, RawConnection], Awaitable[None]]


async def send_and_arrive(gw: RunningGateway, u: ScriptedUpstream, client: RawConnection, body: object) -> None:
    await client.send(request_bytes("POST", CHAT, body))
    await u.arrived()


async def in_the_body(gw: RunningGateway, u: ScriptedUpstream, client: RawConnection) -> None:
    await client.send(request_bytes("POST", CHAT, r0())[:-3])


async def before_the_head(gw: RunningGateway, u: ScriptedUpstream, client: RawConnection) -> None:
    await send_and_arrive(gw, u, client, r0())


async def before_the_head_of_a_whole_answer(gw: RunningGateway, u: ScriptedUpstream, client: RawConnection) -> None:
    await send_and_arrive(gw, u, client, r0(stream=False))


async def after_output(gw: RunningGateway, u: ScriptedUpstream, client: RawConnection) -> None:
    await send_and_arrive(gw, u, client, r0())
    await client.read_until(b'"content":"a"')


async def amid_what_is_passed_on(gw: RunningGateway, u: ScriptedUpstream, client: RawConnection) -> None:
    await client.send(request_bytes("POST", "/v1/rerank", {"model": "m"}))
    await client.read_until(b"half")


PHASES: dict[str, tuple[Leave, Script, int]] = {
    "in the body": (in_the_body, [hang()], 0),
    "before the head": (before_the_head, [hang()], 1),
    "before the first token": (before_the_head, [head(200, "sse"), role(), hang()], 1),
    "before the head of a whole answer": (before_the_head_of_a_whole_answer, [hang()], 1),
    "in a whole answer": (before_the_head_of_a_whole_answer, [head(200, "json"), raw(b"{"), hang()], 1),
    "after output": (after_output, [head(200, "sse"), tok("a"), hang()], 1),
    "amid what is passed on": (amid_what_is_passed_on, [head(200, "json"), raw(b"half"), hang()], 1),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_leaves_is_closed_as_cancelled(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    leave, script, attempts = PHASES[phase]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await leave(gw, u, client)
            await eventually(lambda: bool(flights.opened))
            client.close()
            record = await flights.ended()
        assert (record.outcome, record.error_type) == ("cancelled", None)
        assert [attempt.outcome for attempt in record.attempts] == ["cancelled"] * attempts
        metrics = await gw.at_rest()
        assert metrics.total("weir_requests_in_flight") == 0
        assert metrics.total("weir_requests_total", outcome="cancelled") == 1
        assert metrics.total("weir_endpoint_time_to_first_token_seconds_count") == 0
        if attempts:
            await asyncio.wait_for(u.last.left.wait(), WAIT_S)


async def test_a_client_that_leaves_while_we_connect_is_closed_as_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    with silent_listener() as port:
        async with running_gateway(config(f"http://127.0.0.1:{port}")) as gw:
            async with gw.connect() as client:
                await client.send(request_bytes("POST", CHAT, r0()))
                await eventually(lambda: bool(flights.opened and flights.opened[0].attempts))
                client.reset()
                record = await flights.ended()
            assert record.outcome == "cancelled"
            await gw.at_rest()


async def test_a_client_that_leaves_between_two_attempts_is_closed_as_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flights = watched_flights(monkeypatch)

    def long(attempt: int, jitter: float) -> float:
        return 3600.0

    monkeypatch.setattr("gateway.proxy.wait_s", long)
    async with (
        ScriptedUpstream(json_answer(FAILED, 500)) as a,
        ScriptedUpstream(json_answer(FAILED, 500)) as b,
        running_gateway(config(a.url, b.url)) as gw,
    ):
        async with gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            await eventually(lambda: bool(flights.opened and [a for a in flights.opened[0].attempts if a.ended_s]))
            client.close()
            record = await flights.ended()
        assert record.outcome == "cancelled"
        assert [attempt.outcome for attempt in record.attempts] == ["upstream_error"]


async def test_a_client_that_reads_nothing_and_leaves_is_closed_as_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    script = [head(200, "sse"), flood(lambda _: tok("x" * 65_536)), hang()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        async with connect_slow(gw.port) as client:
            await client.send(request_bytes("POST", CHAT, r0()))
            request = await u.arrived()
            await asyncio.wait_for(request.held_back.wait(), WAIT_S)
            client.reset()
            record = await flights.ended()
        assert record.outcome == "cancelled"
        assert record.client_write_wait_s > 0
        await asyncio.wait_for(u.last.left.wait(), WAIT_S)


async def test_a_server_that_goes_down_closes_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.FAREWELL_S", WAIT_S)
    flights = watched_flights(monkeypatch)
    async with ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u:
        async with running_gateway(config(u.url, shutdown={"drain": 0})) as gw:
            client = gw.connect()
            connection = await client.__aenter__()
            await connection.send(request_bytes("POST", CHAT, r0()))
            await connection.read_until(b'"content":"a"')
        reply = await connection.reply()
        await client.__aexit__(None, None, None)
        assert reply.stream_error is not None
        assert reply.stream_error["code"] == "shutting_down"
        assert not reply.done
        record = await flights.ended()
        assert (record.outcome, record.error_type) == ("shed", "shutting_down")
        assert [attempt.outcome for attempt in record.attempts] == ["cancelled"]


async def test_every_attempt_of_a_request_has_its_own_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    async with ScriptedUpstream(json_answer(FAILED, 500)) as bad, ScriptedUpstream(chat_stream()) as good:
        endpoints = [f"http://127.0.0.1:{unused_port()}", bad.url, good.url]
        async with running_gateway(config(*endpoints, pool_options={"health": {"failures": 99}})) as gw:
            for _ in range(3):
                assert (await gw.post(r0())).done
            await flights.ended(3)
            for record in flights.closed:
                assert record.outcome == "ok"
                assert [a.outcome for a in record.attempts] == ["upstream_error"] * (len(record.attempts) - 1) + ["ok"]
                assert all(a.ended_s is not None and a.ended_s >= a.chosen_s for a in record.attempts)
            assert {a.error_type for record in flights.closed for a in record.attempts} == {"connect", "500", None}


async def test_the_marks_of_a_stream_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    async with ScriptedUpstream(chat_stream("abc")) as u, running_gateway(config(u.url)) as gw:
        body = request_bytes("POST", CHAT, r0())
        reply = await gw.raw(body)
        record = await flights.ended()
        (attempt,) = record.attempts
        marks = [
            record.received_s,
            record.body_read_s,
            record.admitted_s,
            attempt.chosen_s,
            attempt.connected_s,
            attempt.sent_s,
            attempt.head_s,
            attempt.first_output_s,
            record.first_output_s,
            record.last_output_s,
            record.done_s,
        ]
        assert None not in marks
        assert marks == sorted(mark or 0.0 for mark in marks)
        assert record.chunks == 3
        assert record.bytes_in == len(body.partition(b"\r\n\r\n")[2])
        assert 0 < record.bytes_out <= len(reply.body)
        assert record.usage is not None
        assert record.usage.completion_tokens == 2
