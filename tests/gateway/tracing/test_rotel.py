"""Traces as a receiver reads them that shares no code with Weir, by each protocol."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from tests.fakes.gateway import running_gateway
from tests.fakes.otlp_sink import CLIENT, ERROR, SERVER, one, otlp_sink
from tests.fakes.raw_client import r0
from tests.fakes.rotel_agent import rotel_agent
from tests.fakes.scripted import ScriptedUpstream, done, end, fin, head, json_answer, pause, role, tok, usage

SCRIPT = [head(200, "sse"), role(), tok("a"), pause(0.03), tok("é"), fin("stop"), usage(5, 2), done(), end()]


@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf", "grpc"])
async def test_a_foreign_receiver_takes_the_traces(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if protocol != "http/json" and find_spec("opentelemetry.exporter") is None:
        pytest.skip("the extra otlp is not installed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ingress")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=t,service.version=9")
    with otlp_sink() as sink:
        async with (
            rotel_agent(sink) as rotel,
            ScriptedUpstream(SCRIPT) as u,
            ScriptedUpstream(json_answer({}, 500)) as bad,
        ):
            port = rotel.grpc_port if protocol == "grpc" else rotel.http_port
            telemetry = {"otlp_endpoint": f"http://127.0.0.1:{port}", "sample_ratio": 1, "stall": "20ms"}
            pools = {"m": {"endpoints": [u.url]}, "n": {"endpoints": [bad.url]}}
            async with running_gateway(json.dumps({"pools": pools, "telemetry": telemetry})) as gw:
                await gw.post(r0(), headers=[("user-agent", 'a"b\\'), ("x-request-id", "r-1")])
                await gw.post(r0(model="n"))
                failed, good = sorted(await sink.whole(2), key=len)
                await gw.settled(lambda m: m.total("weir_trace_records_total", result="exported") == 2)
    server, client, stream = one(good, kind=SERVER), one(good, kind=CLIENT), one(good, "weir.stream")
    assert (u.last.header("traceparent") or b"").split(b"-")[1:3] == [server.trace_id.encode(), client.span_id.encode()]
    assert (client.parent_id, stream.parent_id, server.parent_id) == (server.span_id, client.span_id, "")
    assert server.attributes["user_agent.original"] == 'a"b\\'
    assert server.attributes["weir.request.id"] == "r-1"
    assert isinstance(server.attributes["weir.ttft_us"], int)
    assert isinstance(client.attributes["gen_ai.response.time_to_first_chunk"], float)
    assert client.attributes["gen_ai.request.stream"] is True
    assert server.start_ns <= client.start_ns <= stream.start_ns <= stream.end_ns <= server.end_ns
    ((name, at_ns, told),) = stream.events
    assert (name, told["chunk"]) == ("weir.stall", 2)
    assert told["gap_us"] > 20_000
    assert stream.start_ns < at_ns <= stream.end_ns
    assert server.resource["service.name"] == "ingress"
    assert server.resource["service.version"] == "9"
    assert server.resource["deployment.environment.name"] == "t"
    assert server.scope == "weir"
    assert {span.status for span in failed} == {ERROR}
