"""A gateway whose traces go to a receiver: what comes there, and what engines are told."""

from __future__ import annotations

import hashlib
import threading
from importlib.util import find_spec
from typing import Any

import pytest

from adapters.openai_stream import OpenAiStream
from adapters.types import Answer
from tests.fakes.gateway import Metrics, RunningGateway, config, running_gateway
from tests.fakes.otlp_sink import CLIENT, ERROR, INTERNAL, SERVER, OtlpSink, SunkSpan, Told, one, otlp_sink
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    ENGINE_MODEL,
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    eof,
    eventually,
    fin,
    hang,
    head,
    json_answer,
    pause,
    role,
    tok,
    unused_port,
    usage,
)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


def traced(sink: OtlpSink, *endpoints: Any, telemetry: dict[str, Any] | None = None, **options: Any) -> str:
    """A configuration whose every trace is kept, unless told otherwise."""
    return config(*endpoints, telemetry={"otlp_endpoint": sink.url, "sample_ratio": 1, **(telemetry or {})}, **options)


def parent(flags: str = "01") -> tuple[str, str]:
    return ("traceparent", f"00-{TRACE}-{PARENT}-{flags}")


def inside(inner: SunkSpan, outer: SunkSpan) -> bool:
    return outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


async def counted(gw: RunningGateway, **expected: int) -> None:
    """Waits until these results are counted, and no other."""

    def told(metrics: Metrics) -> bool:
        samples = [(labels, value) for name, labels, value in metrics.samples if name == "weir_trace_records_total"]
        return {labels["result"]: value for labels, value in samples if value} == expected

    await gw.settled(told)


async def test_a_stream_is_four_spans_of_one_trace() -> None:
    script = [
        head(200, "sse"),
        role(),
        pause(0.02),
        tok("a"),
        pause(0.02),
        tok("b"),
        fin("stop"),
        usage(5, 2),
        done(),
        end(),
    ]
    with otlp_sink() as sink:
        async with ScriptedUpstream(script) as u, running_gateway(traced(sink, {"url": u.url, "id": "gpu-1"})) as gw:
            body = r0(max_tokens=7, temperature=0.5, seed=True, n=1)
            await gw.post(body, headers=[("user-agent", "bill/1"), ("x-request-id", "r-1"), ("host", "api.test:81")])
            (spans,) = await sink.whole()
            (line,) = await gw.logs.access(1)
            await counted(gw, exported=1)
    spans = [span for span in spans if span.name != "weir.queue"]  # a busy machine may take its millisecond
    server, client = one(spans, kind=SERVER), one(spans, kind=CLIENT)
    first, stream = one(spans, "weir.first_token"), one(spans, "weir.stream")
    assert len(spans) == 4
    assert {span.trace_id for span in spans} == {line["trace_id"]}
    assert (server.span_id, True) == (line["span_id"], line["trace_sampled"])
    assert [span.parent_id for span in (server, client, first, stream)] == [
        "",
        server.span_id,
        client.span_id,
        client.span_id,
    ]
    assert len({span.span_id for span in spans}) == 4
    assert u.last.header("traceparent") == f"00-{server.trace_id}-{client.span_id}-01".encode()

    assert inside(client, server)
    assert inside(first, client)
    assert inside(stream, server)
    assert first.end_ns == stream.start_ns
    assert {span.status for span in spans} == {0}
    assert server.name == "POST /v1/chat/completions"
    told = dict(server.attributes)
    for key in ("ttft_us", "longest_gap_us"):
        assert told.pop(f"weir.{key}") >= 15_000
    assert told.pop("weir.queue_us") >= 0
    assert told.pop("weir.overhead_us") >= 0
    assert told == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "http.response.status_code": 200,
        "server.address": "api.test",
        "server.port": 81,
        "network.protocol.version": "1.1",
        "user_agent.original": "bill/1",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "weir.request.id": "r-1",
        "weir.pool": "m",
        "weir.outcome": "ok",
        "weir.attempts": 1,
        "weir.chunks": 2,
        "weir.keep_reason": "head",
    }
    assert client.name == "chat m"
    told = dict(client.attributes)
    assert told.pop("weir.itl_mean_us") >= 15_000
    assert told.pop("weir.longest_gap_us") >= 15_000
    assert 0.015 < told.pop("gen_ai.response.time_to_first_chunk") < 10
    assert told.pop("weir.route.reason")
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.id": "chatcmpl-engine-1",
        "gen_ai.response.model": ENGINE_MODEL,
        "gen_ai.response.finish_reasons": ["stop"],
        "server.address": "127.0.0.1",
        "server.port": u.port,
        "weir.endpoint": "gpu-1",
        "weir.role": "primary",
        "weir.attempt": 1,
        "weir.route.policy": "least_in_flight",
        "http.response.status_code": 200,
    }
    assert first.attributes == stream.attributes == {"weir.endpoint": "gpu-1", "weir.role": "primary"}
    resource = dict(server.resource)
    assert resource.pop("service.instance.id")
    assert resource.pop("process.pid") > 0
    assert resource.pop("service.version")
    assert resource == {"service.name": "weir"}


async def test_a_callers_trace_is_gone_on_with_and_its_flag_decides() -> None:
    with otlp_sink() as sink:
        async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(traced(sink, u.url)) as gw:
            await gw.post(r0(stream=False), headers=[parent("00"), ("tracestate", "a=1")])
            assert u.last.header("tracestate") == b"a=1"
            assert (u.last.header("traceparent") or b"").startswith(f"00-{TRACE}-".encode())
            assert (u.last.header("traceparent") or b"").endswith(b"-00")
            await gw.post(r0(stream=False), headers=[parent("01")])
            (spans,) = await sink.whole()
            await counted(gw, exported=1, not_kept=1)
    server, client = one(spans, kind=SERVER), one(spans, kind=CLIENT)
    assert (server.trace_id, server.parent_id, server.flags) == (TRACE, PARENT, 0x301)
    assert {span.kind for span in spans if span.name != "weir.queue"} == {SERVER, CLIENT}  # nothing streamed
    assert client.flags == 0x101


@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf"])
async def test_a_callers_state_is_on_every_span_of_its_trace(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if protocol != "http/json" and find_spec("opentelemetry.exporter") is None:
        pytest.skip("the extra otlp is not installed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    states = {"r-0": 'a=1 "\\, b@c=x/y', "r-1": "no state", "r-2": "a=1"}
    with otlp_sink() as sink:
        async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(traced(sink, u.url)) as gw:
            for request_id, state in states.items():
                headers = [("x-request-id", request_id), ("tracestate", state)]
                await gw.post(r0(), headers=[*headers, parent()] if request_id != "r-2" else headers)
            traces = await sink.whole(3)
            assert "no state" not in gw.logs.text
    told = {one(spans, kind=SERVER).attributes["weir.request.id"]: {span.state for span in spans} for spans in traces}
    assert told == {"r-0": {'a=1 "\\,b@c=x/y'}, "r-1": {""}, "r-2": {""}}
    assert all(len(spans) >= 4 for spans in traces)


@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf"])
@pytest.mark.parametrize("capture", [{}, {"answers": True}])
async def test_an_attempt_tells_what_the_engines_answer_says_of_itself(
    protocol: str, capture: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol != "http/json" and find_spec("opentelemetry.exporter") is None:
        pytest.skip("the extra otlp is not installed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    whole = completion(finish="length")
    whole["choices"].append({**whole["choices"][0], "index": 1, "finish_reason": "stop"})
    broken = [head(200, "sse"), role(), tok("a"), eof()]
    with otlp_sink() as sink:
        async with ScriptedUpstream(json_answer(whole), broken) as u:
            options = {"capture": capture, "retries": {"attempts": 1}}
            async with running_gateway(traced(sink, u.url, pool_options=options)) as gw:
                for stream in (False, True):
                    await gw.post(r0(stream=stream))
                traces = await sink.whole(2)
    names = {f"gen_ai.response.{name}": name for name in ("id", "model", "finish_reasons")}
    told = [
        {name: span.attributes[key] for key, name in names.items() if key in span.attributes}
        for spans in traces
        for span in sorted(spans, key=lambda span: span.kind != CLIENT)
    ]
    told = [facts for facts in told if facts]
    known = {"id": "chatcmpl-engine-1", "model": ENGINE_MODEL}
    assert told == [{**known, "finish_reasons": ["length", "stop"]}, known]
    assert all(span.kind == CLIENT for spans in traces for span in spans if names.keys() & span.attributes.keys())


async def test_where_no_traces_are_made_nobody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(Answer, "facts", asked.append)
    monkeypatch.setattr(OpenAiStream, "facts", asked.append)
    async with (
        ScriptedUpstream(json_answer(completion()), chat_stream("ab")) as u,
        running_gateway(config(u.url)) as gw,
    ):
        assert (await gw.post(r0(stream=False))).status == 200
        assert (await gw.post(r0())).status == 200
    assert asked == []


@pytest.mark.parametrize(("engine", "peer"), [("vllm", None), ("tgi", "e-1"), ("llamacpp", "e-1"), ("sglang", "e-1")])
async def test_engines_without_a_server_span_are_named_for_the_service_graph(engine: str, peer: str | None) -> None:
    with otlp_sink() as sink:
        async with running_gateway(
            traced(sink, {"url": f"http://127.0.0.1:{unused_port()}", "id": "e-1", "engine": engine})
        ) as gw:
            await gw.post(r0())
            (spans,) = await sink.whole()
    assert one(spans, kind=CLIENT).attributes.get("peer.service") == peer


async def test_retries_are_siblings_and_each_engine_hears_of_its_own_attempt() -> None:
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream(json_answer({"error": "down"}, 500)) as bad,
            ScriptedUpstream(chat_stream("ab")) as good,
            running_gateway(
                traced(
                    sink, {"url": bad.url, "id": "bad"}, {"url": good.url, "id": "good"}, telemetry={"sample_ratio": 0}
                )
            ) as gw,
        ):
            while not bad.requests:
                await gw.post(r0())
            spans = (await sink.whole())[0]
            await gw.settled(lambda m: m.total("weir_trace_records_total", result="exported") == 1)
    server = one(spans, kind=SERVER)
    first, second = sorted([span for span in spans if span.kind == CLIENT], key=lambda span: span.start_ns)
    assert (first.parent_id, second.parent_id) == (server.span_id, server.span_id)
    assert (first.attributes["weir.endpoint"], second.attributes["weir.endpoint"]) == ("bad", "good")
    assert (first.status, second.status, server.status) == (ERROR, 0, 0)
    assert first.attributes["error.type"] == "500"
    assert "error.type" not in server.attributes
    assert "http.request.resend_count" not in first.attributes
    assert second.attributes["http.request.resend_count"] == 1
    assert (server.attributes["weir.attempts"], server.attributes["weir.keep_reason"]) == (2, "retry")
    assert (bad.last.header("traceparent") or b"").split(b"-")[2:] == [first.span_id.encode(), b"00"]
    told = [request.header("traceparent") or b"" for request in good.requests]
    assert f"00-{server.trace_id}-{second.span_id}-00".encode() in told


async def test_a_stream_that_breaks_off_is_an_error_with_the_status_that_was_sent() -> None:
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream([head(200, "sse"), role(), tok("a"), tok("b"), eof()]) as u,
            running_gateway(traced(sink, u.url, telemetry={"sample_ratio": 0})) as gw,
        ):
            await gw.post(r0())
            (spans,) = await sink.whole()
    server, client = one(spans, kind=SERVER), one(spans, kind=CLIENT)
    assert (server.status, client.status) == (ERROR, ERROR)
    assert server.attributes["http.response.status_code"] == 200
    assert server.attributes["error.type"] == client.attributes["error.type"] == "truncated_stream"
    assert (server.attributes["weir.outcome"], server.attributes["weir.keep_reason"]) == ("upstream_error", "error")
    assert one(spans, "weir.stream").kind == INTERNAL


async def test_a_client_that_leaves_is_no_error() -> None:
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream([head(200, "sse"), role(), tok("a"), hang()]) as u,
            running_gateway(traced(sink, u.url)) as gw,
        ):
            async with gw.connect() as connection:
                await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
                await connection.read_until(b'"a"')
            (spans,) = await sink.whole()
    assert {span.status for span in spans} == {0}
    assert not any("error.type" in span.attributes for span in spans)
    assert one(spans, kind=SERVER).attributes["weir.outcome"] == "cancelled"


@pytest.mark.parametrize(("status", "outcome", "server_status"), [(400, "client_error", 0), (503, "shed", ERROR)])
async def test_who_is_in_error_when_an_engine_refuses(status: int, outcome: str, server_status: int) -> None:
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream(json_answer({"error": {"message": "CANARY"}}, status)) as u,
            running_gateway(traced(sink, u.url)) as gw,
        ):
            await gw.post(r0())
            (spans,) = await sink.whole()
            assert b"CANARY" not in b"".join(post.body for post in sink.posts)
    server, client = one(spans, kind=SERVER), one(spans, kind=CLIENT)
    assert (server.status, client.status) == (server_status, ERROR)
    assert client.attributes["error.type"] == str(status)
    assert server.attributes["weir.outcome"] == outcome


async def test_a_request_that_reached_no_engine_is_one_span() -> None:
    with otlp_sink() as sink:
        async with running_gateway(traced(sink, "http://127.0.0.1:9", "http://127.0.0.1:9")) as gw:
            await gw.post(r0(model="nobody"))
            await gw.post(r0(model="nobody"), path="/v1/odd/" + "x" * 30)
            one_, other = await sink.whole(2)
    assert [len(one_), len(other)] == [1, 1]
    names = {one_[0].name, other[0].name}
    assert names == {"POST /v1/chat/completions", "POST /v1/*"}
    assert not any("gen_ai.request.model" in spans[0].attributes for spans in (one_, other))


async def test_a_stall_is_an_event_of_the_stream() -> None:
    script = [head(200, "sse"), role()]
    for _ in range(10):
        script += [tok("a"), pause(0.06)]
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream([*script, tok("z"), fin("stop"), done(), end()]) as u,
            running_gateway(traced(sink, u.url, telemetry={"sample_ratio": 0, "stall": "50ms"})) as gw,
        ):
            await gw.post(r0())
            (spans,) = await sink.whole()
    stream = one(spans, "weir.stream")
    assert [event[0] for event in stream.events] == ["weir.stall"] * 8
    assert [event[2]["chunk"] for event in stream.events] == list(range(2, 10))
    for _, at_ns, told in stream.events:
        assert told["gap_us"] > 50_000
        assert stream.start_ns < at_ns <= stream.end_ns
    assert one(spans, kind=SERVER).attributes["weir.keep_reason"] == "stall"


@pytest.mark.parametrize(
    ("telemetry", "reason"),
    [
        ({"keep_slower_than": {"ttft": "1ms"}}, "slow_ttft"),
        ({"keep_slower_than": {"ttft": 0, "duration": "1ms"}}, "slow"),
        ({"keep": [{"header": {"x-team": "payments"}, "min_tokens": 7}]}, "rule"),
        ({"keep": [{"pool": "m", "model": "m", "min_prompt_tokens": 5}]}, "rule"),
        ({"keep": [{"header": {"x-team": "payments"}, "min_tokens": 8}]}, None),
        ({"keep": [{"header": {"x-team": "Payments"}}]}, None),
        ({"keep": [{"key": "another"}, {"key": "sk-1"}]}, "rule"),
        ({"keep": [{"key": "sk-1", "header": {"x-team": "payments"}}]}, "rule"),
        ({"keep": [{"key": "sk-1", "min_tokens": 8}]}, None),
        ({"keep": [{"key": "SK-1"}, {"key": "sk-"}]}, None),
        ({}, None),
    ],
)
async def test_what_the_file_asks_for_is_kept(telemetry: dict[str, Any], reason: str | None) -> None:
    script = [head(200, "sse"), role(), pause(0.01), tok("a"), fin("stop"), usage(5, 2), done(), end()]
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream(script) as u,
            running_gateway(traced(sink, u.url, telemetry={"sample_ratio": 0, **telemetry})) as gw,
        ):
            await gw.post(r0(), headers=[("X-Team", "payments"), ("Authorization", "bearer  sk-1")])
            (line,) = await gw.logs.access(1)
            assert line["trace_sampled"] == (reason is not None)
            if reason is None:
                await counted(gw, not_kept=1)
                return
            (spans,) = await sink.whole()
    assert one(spans, kind=SERVER).attributes["weir.keep_reason"] == reason
    assert (u.last.header("traceparent") or b"").endswith(b"-00")


@pytest.mark.parametrize(
    "headers",
    [[], [("authorization", "Basic sk-1")], [("authorization", "Bearer")], [("authorization", "sk-1")],
     [("x-api-key", "sk-1")]],
)  # fmt: skip
async def test_who_does_not_send_the_key_as_a_bearer_is_not_kept_for_it(headers: list[tuple[str, str]]) -> None:
    telemetry = {"sample_ratio": 0, "keep": [{"key": "sk-1"}]}
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream(json_answer(completion())) as u,
            running_gateway(traced(sink, u.url, telemetry=telemetry)) as gw,
        ):
            await gw.post(r0(stream=False), headers=headers)
            await counted(gw, not_kept=1)


async def test_a_key_that_a_rule_names_is_nowhere_to_be_read() -> None:
    keys = ("CANARYRULE", "CANARYCALLER")
    traces = {"sample_ratio": 0, "keep": [{"key": keys[0]}, {"header": {"x-all": "1"}}]}
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream(json_answer(completion())) as u,
            running_gateway(traced(sink, u.url, telemetry=traces, log={"level": "debug"})) as gw,
        ):
            for key in keys:
                headers = [("authorization", f"Bearer {key}"), ("x-all", "1"), ("x-request-id", "r-1")]
                await gw.post(r0(stream=False), headers=headers)
            await sink.whole(2)
            await counted(gw, exported=2)
            await gw.logs.access(2)
            told = [(await gw.get(path)).raw for path in ("/weir/requests", "/weir/requests/r-1", "/metrics")]
            told.append(gw.logs.text.encode())
    assert b"r-1" in told[1]
    told += [post.body for post in sink.posts]
    for key in keys:
        digest = hashlib.sha256(key.encode())
        for secret in (key.encode(), digest.digest(), digest.hexdigest().encode()):
            assert not any(secret in what for what in told)


async def test_a_storm_of_errors_is_bounded_and_a_rule_is_not() -> None:
    with otlp_sink() as sink:
        telemetry = {"sample_ratio": 0, "tail_per_second": 1, "keep": [{"header": {"x-team": "a"}}]}
        async with running_gateway(traced(sink, "http://127.0.0.1:9", telemetry=telemetry)) as gw:
            for _ in range(5):
                await gw.post(r0(), headers=[("x-team", "a")])
            await sink.whole(5)
            for _ in range(20):
                await gw.post(r0())
            limited = await gw.total("weir_trace_records_total", result="rate_limited")
            assert limited > 0
            await eventually(lambda: len(sink.traces()) == 25 - limited)


async def test_joined_embeddings_tell_the_engine_of_one_trace_and_link_the_others_to_it() -> None:
    answer = json_answer(
        {
            "id": "embd-1",
            "object": "list",
            "model": "engine-e",
            "data": [{"object": "embedding", "index": i, "embedding": [0.5]} for i in range(2)],
            "usage": {"prompt_tokens": 4, "total_tokens": 4},
        }
    )
    options = {"embeddings_batch": {"inputs": 2, "wait": "5s"}}
    with otlp_sink() as sink:
        async with (
            ScriptedUpstream(answer) as u,
            running_gateway(traced(sink, u.url, telemetry={"keep": [{"pool": "m"}]}, pool_options=options)) as gw,
            gw.connect() as first,
            gw.connect() as second,
        ):
            for connection, flags in ((first, "00"), (second, "01")):
                body = {"model": "m", "input": "hello"}
                context = (parent(flags)[0], parent(flags)[1].replace("4bf", f"{flags}f"))
                await connection.send(request_bytes("POST", "/v1/embeddings", body, [context]))
            for connection in (first, second):
                assert (await connection.reply()).status == 200
            traces = await sink.whole(2)
    assert len(u.requests) == 1
    by_trace = {spans[0].trace_id[:2]: one(spans, kind=CLIENT) for spans in traces}
    quiet, speaker = by_trace["00"], by_trace["01"]
    assert u.last.header("traceparent") == f"00-{speaker.trace_id}-{speaker.span_id}-01".encode()
    assert speaker.links == []
    assert quiet.links == [(speaker.trace_id, speaker.span_id)]
    for span in (quiet, speaker):
        told = [span.attributes.get(f"gen_ai.response.{name}") for name in ("id", "model", "finish_reasons")]
        assert told == ["embd-1", "engine-e", None]


async def test_where_no_traces_are_asked_for_none_are_made() -> None:
    with otlp_sink() as sink:
        async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
            await gw.post(r0())
            (line,) = await gw.logs.access(1)
            assert (u.last.header("traceparent") or b"").startswith(f"00-{line['trace_id']}-".encode())
            await counted(gw)
    assert sink.posts == []


async def test_a_receiver_that_hangs_delays_no_request_and_what_does_not_fit_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    gate = threading.Event()
    with otlp_sink(Told(gate=gate), Told()) as sink:
        async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(traced(sink, u.url)) as gw:
            await gw.post(r0())
            await eventually(lambda: len(sink.posts) == 1)
            for _ in range(5):
                assert (await gw.post(r0())).done
            await counted(gw, queue_full=3)  # one is on its way, two are in the queue
            gate.set()
            traces = await sink.whole(3)
            assert all({span.kind for span in spans} == {SERVER, CLIENT, INTERNAL} for spans in traces)  # no halves
            lines = await gw.logs.access(6)
            assert [line["trace_sampled"] for line in lines] == [True] * 3 + [False] * 3
            await counted(gw, exported=3, queue_full=3)


async def test_what_is_queued_is_sent_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with otlp_sink() as sink:
        async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(traced(sink, u.url)) as gw:
            for _ in range(3):
                await gw.post(r0())
            assert sink.posts == []
        assert len(sink.traces()) == 3


async def test_an_end_waits_for_no_receiver_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.tracing.export.FLUSH_S", 0.1)
    with otlp_sink(Told(gate=threading.Event())) as sink:
        async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(traced(sink, u.url)) as gw:
            await gw.post(r0())
            await eventually(lambda: len(sink.posts) == 1)
            await gw.post(r0())
        assert sink.spans == []  # and the gateway has stopped, within the bound of running_gateway
    assert "were not sent" in caplog.text
