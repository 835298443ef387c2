"""The numbers: what the exposition says is what happened, and it stays bounded."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.types import Usage
from gateway.config import Config, EndpointConfig, MetricsConfig, PoolConfig
from gateway.fleet import Fleet
from gateway.flight import AttemptRecord
from gateway.instruments import histogram
from gateway.instruments.histogram import Histogram
from gateway.instruments.metrics_text import OTHER, CounterFamily, HistogramFamily, ReadFamily, Room
from gateway.metrics import Metrics
from tests.fakes.flown import record, samples, total
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes, t0
from tests.fakes.scripted import (
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    fin,
    gate,
    head,
    in_turn,
    json_answer,
    pause,
    role,
    rst,
    text_stream,
    tok,
)
from tests.fakes.scripted import usage as usage_chunk

FAILED: object = {"error": {"message": "engine trouble", "code": 500}}
EDGES: dict[str, tuple[float, ...]] = {
    "TTFT": histogram.TTFT,
    "GAP": histogram.GAP,
    "DURATION": histogram.DURATION,
    "QUEUE": histogram.QUEUE,
    "SMALL": histogram.SMALL,
    "TOKENS": histogram.TOKENS,
}


def fleet() -> Fleet:
    endpoints = (EndpointConfig(url="http://127.0.0.1:9", engine="vllm", id="e"),)
    return Fleet(Config(pools={"m": PoolConfig(endpoints=endpoints)}))


# --- histograms


@pytest.mark.parametrize("name", sorted(EDGES))
def test_edges_rise(name: str) -> None:
    assert list(EDGES[name]) == sorted(set(EDGES[name]))


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 2000), max_size=50), n=st.integers(1, 5))
def test_a_histogram_counts_as_prometheus_does(values: list[float], n: int) -> None:
    made = Histogram(histogram.TTFT)
    for value in values:
        made.observe(value)
        made.observe_n(value, n)
    for i, edge in enumerate(histogram.TTFT):
        assert sum(made.counts[: i + 1]) == sum(value <= edge for value in values) * (n + 1)
    assert sum(made.counts) == len(values) * (n + 1)
    assert math.isclose(made.sums[0], math.fsum(values) * (n + 1), abs_tol=1e-6)


# --- the text form

LABEL = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)


@settings(deadline=None)
@given(label=LABEL, value=st.floats(allow_nan=False, min_value=0))
def test_any_label_and_any_value_can_be_read_back(label: str, value: float) -> None:
    family = CounterFamily("x_total", "Help.", ("a",), Room(10))
    family.at(label).add(value)
    gauge = ReadFamily("g", "Help.", ("a",), lambda: [((label,), -value)])
    read = samples("".join([*family.lines(), *gauge.lines()]))
    assert read["x_total", (("a", label),)] == value
    assert read["g", (("a", label),)] == -value


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 100), max_size=20))
def test_a_histogram_can_be_read_back(values: list[float]) -> None:
    family = HistogramFamily("h", "Help.", ("a",), (0.00005, 0.1, 1, 10), Room(10))
    for value in values:
        family.at("x").observe(value)
    read = samples("".join(family.lines()))
    if values:
        assert read["h_count", (("a", "x"),)] == len(values)
        assert read["h_sum", (("a", "x"),)] == pytest.approx(sum(values))
        for edge, le in ((0.00005, "5e-05"), (0.1, "0.1"), (1, "1.0"), (10, "10.0"), (math.inf, "+Inf")):
            assert read["h_bucket", (("a", "x"), ("le", le))] == sum(value <= edge for value in values)


def test_the_whole_exposition_can_be_read_and_names_its_families_once() -> None:
    subject = Metrics(fleet())
    subject.observe((record(attempts=[AttemptRecord("e", "why", 1.0, outcome="ok")]),))
    text = subject.render()
    samples(text)
    heads = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))
    names = {line.split()[2] for line in heads}
    assert {"weir_requests_total", "weir_time_to_first_token_seconds", "process_cpu_seconds_total"} <= names
    assert text.endswith("\n")


# --- the cap on series


def test_series_beyond_the_cap_are_counted_under_other() -> None:
    room = Room(3)
    family = CounterFamily("x_total", "Help.", ("a", "b"), room)
    for n in range(10):
        family.at(f"a{n}", "b").add()
    read = samples("".join(family.lines()))
    assert len(read) == 4
    assert read["x_total", (("a", OTHER), ("b", OTHER))] == 7
    assert room.dropped == 7


def test_the_cap_is_over_all_families() -> None:
    room = Room(2)
    counter = CounterFamily("x_total", "Help.", ("a",), room)
    made = HistogramFamily("h", "Help.", ("a",), (1.0,), room)
    for n in range(5):
        counter.at(f"a{n}").add()
        made.at(f"a{n}").observe(0.5)
    read = samples("".join([*counter.lines(), *made.lines()]))
    assert read["h_count", (("a", OTHER),)] == 4
    assert read["x_total", (("a", OTHER),)] == 4


def test_a_label_set_without_room_is_told_of_once_however_often_it_counts() -> None:
    room = Room(0)
    family = CounterFamily("x_total", "Help.", ("a",), room)
    for _ in range(5):
        family.at("same").add()
    assert room.dropped == 1


def test_with_all_room_gone_every_request_still_counts() -> None:
    subject = Metrics(fleet(), options=MetricsConfig(max_series=20))
    for n in range(50):
        subject.observe((record(pool=f"p{n}", model=f"m{n}"),))
    read = samples(subject.render())
    assert total(read, "weir_requests_total") == 50
    assert read[
        "weir_requests_total", tuple(sorted(dict.fromkeys(("model", "operation", "outcome", "pool"), OTHER).items()))
    ]
    assert total(read, "weir_metrics_series_dropped_total") > 0


def test_a_stream_is_in_every_histogram_of_streams() -> None:
    subject = Metrics(fleet())
    attempt = AttemptRecord(
        "e", "why", 10.3, connected_s=10.35, sent_s=10.4, first_output_s=10.6, ended_s=11.0, outcome="ok"
    )
    flown = record(
        stream=True,
        body_read_s=10.1,
        admitted_s=10.3,
        first_output_s=10.6,
        last_output_s=10.9,
        longest_gap_s=0.2,
        usage=Usage(7, 4, 5, 1),
        attempts=[attempt],
    )
    subject.observe((flown,))
    read = samples(subject.render())
    expected = {
        "weir_time_to_first_token_seconds": 0.5,
        "weir_request_duration_seconds": 0.9,
        "weir_longest_token_gap_seconds": 0.2,
        "weir_queue_duration_seconds": 0.2,
        "weir_gateway_overhead_seconds": 0.1,
        "weir_endpoint_time_to_first_token_seconds": 0.2,
        "weir_endpoint_duration_seconds": 0.6,
        "weir_endpoint_connect_seconds": 0.05,
        "weir_time_per_output_token_seconds": 0.1,
        "weir_output_tokens_per_request": 4,
    }
    for name, seconds in expected.items():
        assert total(read, f"{name}_count") == 1, name
        assert total(read, f"{name}_sum") == pytest.approx(seconds), name
    tokens = {
        kind: total(read, "weir_tokens_total", type=kind) for kind in ("input", "output", "cached_input", "reasoning")
    }
    assert tokens == {"input": 7, "output": 4, "cached_input": 5, "reasoning": 1}


@given(values=st.lists(st.floats(0, 100), max_size=20))
def test_values_that_are_observed_together_count_as_one_by_one(values: list[float]) -> None:
    one_by_one, together = Histogram((0.00005, 0.1, 1, 10)), Histogram((0.00005, 0.1, 1, 10))
    for value in values:
        one_by_one.observe(value)
    together.observe_all(values)
    assert list(together.counts) == list(one_by_one.counts)
    assert together.sums[0] == pytest.approx(one_by_one.sums[0])


def test_a_record_that_cannot_be_counted_costs_no_other_its_count() -> None:
    subject = Metrics(fleet())
    records = iter((record(), record(attempts=[None]), record()))
    with pytest.raises(AttributeError):
        subject.observe(records)
    assert total(samples(subject.render()), "weir_requests_total") == 2
    subject.observe(records)
    assert total(samples(subject.render()), "weir_requests_total") == 3


@pytest.mark.parametrize(
    ("usage", "bytes_in", "length"),
    [
        (Usage(255, 1), 0, "0-255"),
        (Usage(256, 1), 0, "256-1023"),
        (Usage(65536, 1), 0, "65536+"),
        (None, 4 * 5000, "4096-16383"),  # estimated
    ],
)
def test_first_tokens_are_told_apart_by_the_length_of_the_prompt(
    usage: Usage | None, bytes_in: int, length: str
) -> None:
    subject = Metrics(fleet())
    timed = {"body_read_s": 10.1, "admitted_s": 10.1, "first_output_s": 10.6}
    subject.observe((record(stream=True, usage=usage, bytes_in=bytes_in, **timed),))
    read = samples(subject.render())
    name = "weir_prompt_time_to_first_token_seconds"
    assert total(read, f"{name}_count", prompt_tokens=length) == total(read, f"{name}_count") == 1
    assert total(read, f"{name}_sum") == pytest.approx(0.5)


def test_a_whole_answer_has_no_first_token() -> None:
    subject = Metrics(fleet())
    subject.observe((record(body_read_s=10.1, admitted_s=10.1, first_output_s=10.6),))
    read = samples(subject.render())
    assert total(read, "weir_time_to_first_token_seconds_count") == 0
    assert total(read, "weir_request_duration_seconds_count") == 1


def test_a_request_without_a_model_is_counted_under_other() -> None:
    subject = Metrics(fleet())
    subject.observe((record(pool="", model="", outcome="client_error"),))
    read = samples(subject.render())
    assert total(read, "weir_requests_total", pool=OTHER, model=OTHER, outcome="client_error") == 1


@pytest.mark.parametrize("outcome", ["cancelled", "upstream_error", "timeout", "shed", "client_error"])
def test_tokens_of_an_attempt_that_failed_count_but_make_no_answer(outcome: str) -> None:
    subject = Metrics(fleet())
    attempt = AttemptRecord("e", "why", 10.3, sent_s=10.4, ended_s=11.0, outcome=outcome)  # type: ignore[arg-type]
    subject.observe((record(usage=Usage(7, 4), attempts=[attempt]),))
    read = samples(subject.render())
    assert total(read, "weir_tokens_total", type="output") == 4
    assert total(read, "weir_output_tokens_per_request_count") == 0
    assert total(read, "weir_time_per_output_token_seconds_count") == 0
    assert total(read, "weir_endpoint_attempts_total", outcome=outcome) == 1


def test_estimated_tokens_are_counted_apart() -> None:
    subject = Metrics(fleet())
    attempt = AttemptRecord("e", "why", 10.3, sent_s=10.4, ended_s=11.0, outcome="ok")
    subject.observe((record(usage=Usage(7, 4, estimated=True), attempts=[attempt]),))
    read = samples(subject.render())
    assert total(read, "weir_tokens_total", type="output", source="estimate") == 4
    assert total(read, "weir_tokens_total", type="output", source="usage") == 0
    assert total(read, "weir_output_tokens_per_request_count") == 0


# --- over the whole way

NO_EJECTION = {"health": {"failures": 1000}}


async def test_counts_are_right_after_a_mix_of_requests() -> None:
    scripts = in_turn(
        chat_stream("abc"),
        json_answer(completion()),
        text_stream("ab"),
        json_answer(FAILED, 400),
        json_answer(FAILED, 500),
        json_answer(FAILED, 503),
        [head(200, "sse"), tok("a"), rst()],
        json_answer({"object": "list", "data": [], "model": "x", "usage": {"prompt_tokens": 3, "total_tokens": 3}}),
        json_answer({}),
    )
    async with ScriptedUpstream(scripts) as u, running_gateway(config(u.url, pool_options=NO_EJECTION)) as gw:
        await gw.post(r0())
        await gw.post(r0(stream=False))
        await gw.post(t0(), "/v1/completions")
        for _ in range(4):
            await gw.post(r0())
        await gw.post({"model": "m", "input": "x"}, "/v1/embeddings")
        await gw.post({"model": "m"}, "/v1/rerank")
        await gw.post(r0(model="unknown"))
        scrape = await gw.at_rest()
        outcomes = {"ok": 5, "client_error": 2, "upstream_error": 2, "shed": 1, "timeout": 0, "cancelled": 0}
        assert {name: scrape.total("weir_requests_total", outcome=name) for name in outcomes} == outcomes
        operations = {"chat": 7, "text_completion": 1, "embeddings": 1, "other": 1}
        assert {name: scrape.total("weir_requests_total", operation=name) for name in operations} == operations
        assert scrape.total("weir_request_duration_seconds_count") == 10
        assert scrape.total("weir_endpoint_attempts_total") == 9
        assert scrape.total("weir_time_to_first_token_seconds_count") == 3
        assert scrape.total("weir_inter_token_latency_seconds_count") == 2 + 1
        assert scrape.total("weir_tokens_total", type="output", source="usage") == 2 * 3
        assert scrape.total("weir_tokens_total", type="input", source="usage") == 5 * 3 + 3
        assert scrape.total("weir_tokens_total", type="output", source="estimate") == 1, "of the stream that broke"
        assert scrape.total("weir_shed_total") == 1


async def test_gaps_and_ttft_are_those_of_the_stream() -> None:
    script = [
        head(200, "sse"),
        role(),
        pause(0.05),
        tok("a"),
        pause(0.1),
        tok("b"),
        tok("c"),
        fin("stop"),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0())).done
        scrape = await gw.outcome("ok")
        assert scrape.total("weir_inter_token_latency_seconds_count") == 2
        assert scrape.total("weir_inter_token_latency_seconds_sum") >= 0.1
        assert scrape.total("weir_longest_token_gap_seconds_sum") >= 0.1
        assert scrape.total("weir_time_to_first_token_seconds_sum") >= 0.05


async def test_the_gaps_of_a_stream_that_still_runs_are_in_the_sum_as_in_the_count() -> None:
    """Else their mean, a rate of one by a rate of the other, would be wrong wherever streams are long."""
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), pause(0.1), tok("b"), gate(opened), fin("stop"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        await client.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await client.read_until(b'"b"')
        scrape = await gw.metrics()
        assert scrape.total("weir_inter_token_latency_seconds_count") == 1
        assert scrape.total("weir_inter_token_latency_seconds_sum") >= 0.1
        opened.set()
        await client.reply()
        assert (await gw.outcome("ok")).total("weir_inter_token_latency_seconds_count") == 1


@pytest.mark.parametrize("tokens", [0, 1])
async def test_an_answer_of_one_token_or_none_has_no_time_per_token(tokens: int) -> None:
    script = [head(200, "sse"), role(), *[tok("a")] * tokens, fin("stop"), usage_chunk(5, tokens), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0())
        scrape = await gw.outcome("ok")
        assert scrape.total("weir_time_per_output_token_seconds_count") == 0
        assert scrape.total("weir_time_to_first_token_seconds_count") == tokens
        assert scrape.total("weir_output_tokens_per_request_count") == 1


async def test_the_gauges_show_what_is_configured() -> None:
    async with running_gateway(
        config({"url": "http://127.0.0.1:9", "id": "a"}, {"url": "http://127.0.0.1:9", "id": "b"})
    ) as gw:
        scrape = await gw.metrics()
        assert scrape.values("weir_endpoint_in_flight") == [0, 0]
        assert scrape.values("weir_requests_in_flight", pool="m") == [0]
        assert scrape.values("weir_endpoint_healthy") == [1, 1]
        assert scrape.values("weir_endpoint_info", engine="vllm", pool="m") == [1, 1]
        assert scrape.values("weir_build_info") == [1]
        assert scrape.values("weir_metrics_series_dropped_total") == [0]


async def test_whatever_clients_ask_for_the_number_of_series_stays_as_it_is() -> None:
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:

        async def once(n: int) -> None:
            await gw.post(r0(model=f"unknown-{n}"))
            await gw.post(r0(stream=False, user=f"u{n}"), headers=[("x-request-id", f"id-{n}")])
            await gw.post({"model": "m"}, f"/v1/thing-{n}")
            await gw.get(f"/nothing-{n}")

        await once(0)
        before = len((await gw.at_rest()).samples)
        for n in range(1, 15):
            await once(n)
        assert len((await gw.at_rest()).samples) == before
