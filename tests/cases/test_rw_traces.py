"""RW-31, traces-privacy: one whole trace for each of many streams that overlap, however each ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.otlp_sink import CLIENT, SERVER, OtlpSink, otlp_sink
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    eventually,
    hang,
    head,
    role,
    rst,
    tok,
)

EACH = 5
CHAT = "/v1/chat/completions"
BEGUN = [head(200, "sse"), role(), tok("a")]
ANSWERS: dict[str, Script] = {
    "complete": chat_stream("ab"),
    "leaves": [*BEGUN, hang()],
    "reset": [*BEGUN, rst()],
    "shutdown": [*BEGUN, hang()],
}
OUTCOMES = {"complete": "ok", "leaves": "cancelled", "reset": "upstream_error", "shutdown": "shed"}


def traced(sink: OtlpSink, url: str) -> str:
    return config(url, telemetry={"otlp_endpoint": sink.url, "sample_ratio": 1}, shutdown={"drain": 0})


def trace_of(kind: str, number: int) -> str:
    return f"{list(ANSWERS).index(kind) + 1:016x}{number + 1:016x}"


async def stream(gateway: RunningGateway, kind: str, number: int, begun: asyncio.Barrier) -> None:
    """One request, in a trace of its own. All are open before any ends."""
    parent = f"00-{trace_of(kind, number)}-00f067aa0ba902b7-01"
    named = [("traceparent", parent), ("x-request-id", f"{kind}-{number}")]
    async with gateway.connect() as connection:
        await connection.send(request_bytes("POST", CHAT, r0(), named))
        await connection.read_until(b'"content":"a')
        await begun.wait()
        if kind != "leaves":
            await connection.reply()


async def test_rw_31_each_of_many_streams_leaves_one_whole_trace_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")

    def answer(request: Request) -> Script:
        return ANSWERS[(request.header("x-request-id") or b"").decode().partition("-")[0]]

    begun = asyncio.Barrier(EACH * len(ANSWERS))
    with otlp_sink() as sink:
        async with ScriptedUpstream(answer) as u:
            async with running_gateway(traced(sink, u.url)) as gw:
                running = [
                    asyncio.ensure_future(stream(gw, kind, number, begun)) for kind in ANSWERS for number in range(EACH)
                ]
                await eventually(lambda: sum(task.done() for task in running) == EACH * (len(ANSWERS) - 1))
            await asyncio.gather(*running)
            engines = {request.header("x-request-id"): request.header("traceparent") for request in u.requests}
        traces = sink.traces()
    assert len(traces) == EACH * len(ANSWERS)
    by_id = {spans[0].trace_id: spans for spans in traces}
    for kind, outcome in OUTCOMES.items():
        for number in range(EACH):
            spans = by_id[trace_of(kind, number)]
            assert {span.trace_id for span in spans} == {trace_of(kind, number)}
            [root] = [span for span in spans if span.kind == SERVER]
            [call] = [span for span in spans if span.kind == CLIENT]
            assert root.attributes["weir.outcome"] == outcome
            assert root.attributes["weir.request.id"] == f"{kind}-{number}"
            assert call.parent_id == root.span_id
            told = engines[f"{kind}-{number}".encode()]
            assert told is not None
            assert told.decode().split("-")[1:3] == [trace_of(kind, number), call.span_id]
    assert "Traceback" not in caplog.text
    assert "detach" not in caplog.text
