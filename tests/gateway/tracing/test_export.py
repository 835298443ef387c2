"""The exporter against a receiver that is slow, busy, broken or choosy."""

from __future__ import annotations

import gzip
import json
import math
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from gateway.flight import FlightRecord
from gateway.tracing import otlp_json
from gateway.tracing.otlp_json import OtlpJsonExporter, Target, encode
from gateway.tracing.spans import SpanMaker
from gateway.tracing.trace import Trace
from gateway.tracing.trace_span import Process, attributes_json
from tests.fakes.otlp_sink import Told, otlp_sink
from tests.fakes.scripted import unused_port

TAKEN, LOST = SpanExportResult.SUCCESS, SpanExportResult.FAILURE


@pytest.fixture(autouse=True)
def patient_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_WAIT_S", "LONGEST_WAIT_S", "LEAST_WAIT_S"):
        monkeypatch.setattr(otlp_json, name, 0.01)


PROCESS = Process(Resource({"service.name": "weir"}), InstrumentationScope("weir", "1"))


def spans(count: int = 1, path: str = "/v1/chat/completions") -> list[Trace]:
    """Traces of one span each."""
    record = FlightRecord("r", "POST", path, 0.0, 1.0, [], trace_id="a" * 32, span_id="b" * 16, done_s=1.0)
    return [Trace(record, {}, SpanMaker(("h", 1)), PROCESS)] * count


@contextmanager
def exporter(port: int, timeout_s: float = 10.0, *, compressed: bool = True) -> Generator[OtlpJsonExporter]:
    """An exporter to that port of this machine."""
    made = OtlpJsonExporter(Target(f"http://127.0.0.1:{port}/v1/traces", (("x-key", "k"),), timeout_s, compressed))
    try:
        yield made
    finally:
        made.shutdown()


@pytest.mark.parametrize("compressed", [True, False])
def test_a_batch_is_one_post_of_json_on_a_connection_that_is_kept(compressed: bool) -> None:
    with otlp_sink() as sink, exporter(sink.port, compressed=compressed) as subject:
        assert subject.export(spans()) is TAKEN
        assert subject.export(spans(3)) is TAKEN
        first, second = sink.posts
    assert first.path == "/v1/traces"
    assert (first.headers["content-type"], first.headers["x-key"]) == ("application/json", "k")
    assert first.headers.get("content-encoding") == ("gzip" if compressed else None)
    body = json.loads(gzip.decompress(second.body) if compressed else second.body)
    assert len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 3
    assert len(sink.spans) == 4


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_be_better_later_is_sent_again(status: int) -> None:
    with otlp_sink(Told(status), Told(status, headers=(("retry-after", "0"),)), Told()) as sink:
        with exporter(sink.port) as subject:
            assert subject.export(spans()) is TAKEN
        assert len(sink.posts) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500, 501])
def test_what_will_not_be_better_is_given_up(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with otlp_sink(Told(status, b"no\n\x1b[31mthanks"), Told()) as sink, exporter(sink.port) as subject:
        assert subject.export(spans()) is LOST
        assert len(sink.posts) == 1
        assert subject.export(spans()) is TAKEN
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"127.0.0.1 says {status} no" in warning
    assert "\x1b" not in warning


def test_a_retry_that_is_told_to_come_later_than_there_is_time_is_not_waited_for() -> None:
    with otlp_sink(Told(503, headers=(("retry-after", "3600"),))) as sink, exporter(sink.port) as subject:
        assert subject.export(spans()) is LOST
        assert len(sink.posts) == 1


def test_a_receiver_that_is_down_costs_the_time_of_a_batch_and_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with exporter(unused_port(), timeout_s=0.05) as subject:
        for _ in range(3):
            assert subject.export(spans()) is LOST
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_a_receiver_that_hangs_costs_the_time_of_a_batch() -> None:
    with otlp_sink(Told(gate=threading.Event())) as sink, exporter(sink.port, timeout_s=0.1) as subject:
        assert subject.export(spans()) is LOST


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    with otlp_sink() as sink, exporter(sink.port) as subject:
        assert subject.export(spans()) is TAKEN
        assert subject._connection is not None  # pyright: ignore[reportPrivateUsage]
        subject._connection.sock.close()  # pyright: ignore[reportPrivateUsage]
        assert subject.export(spans()) is TAKEN
        assert len(sink.spans) == 2


def test_a_shutdown_ends_what_is_under_way_and_nothing_follows() -> None:
    with otlp_sink(Told(gate=threading.Event())) as sink, exporter(sink.port, timeout_s=60) as subject:
        results: list[SpanExportResult] = []
        thread = threading.Thread(target=lambda: results.append(subject.export(spans())))
        thread.start()
        while not sink.posts:
            thread.join(0.005)
        subject.shutdown()
        thread.join(10)
        assert results == [LOST]
        assert subject.export(spans()) is LOST
        assert len(sink.posts) == 1


@pytest.mark.parametrize(
    ("answer", "result", "rejected"),
    [
        (b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}', TAKEN, 1),
        (b'{"partialSuccess":{"rejectedSpans":1}}', TAKEN, 1),
        (b'{"partialSuccess":{"rejectedSpans":"2"}}', LOST, 0),
        (b'{"partialSuccess":{}}', TAKEN, 0),
        (b'{"partialSuccess":null}', TAKEN, 0),
        (b"[]", TAKEN, 0),
        (b"", TAKEN, 0),
        (b"\x00\xff" * 100_000, TAKEN, 0),
    ],
)
def test_spans_that_a_receiver_did_not_take_are_told(answer: bytes, result: SpanExportResult, rejected: int) -> None:
    with otlp_sink(Told(body=answer)) as sink, exporter(sink.port) as subject:
        assert subject.export(spans(2)) is result
        assert subject.rejected_spans == rejected
        assert subject.export(spans(200)) is TAKEN


VALUES = (
    st.text(st.characters(exclude_categories=()))
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.dictionaries(st.sampled_from(["a", "weir.b", "c.d"]), VALUES))
def test_attributes_of_any_value_are_json_of_otlps_kind(given_: dict[str, str | int | bool | float]) -> None:
    written = json.loads(f"[{attributes_json(given_)}]")
    assert len(written) == len(given_)
    for entry, (key, value) in zip(written, given_.items(), strict=True):
        ((kind, told),) = entry["value"].items()
        assert entry["key"] == key
        if isinstance(value, bool):
            assert (kind, told) == ("boolValue", value)
        elif isinstance(value, int):
            assert (kind, told) == ("intValue", str(value))
        elif isinstance(value, float):
            assert kind == "doubleValue"
            assert math.isclose(told, value)
        else:
            assert (kind, told) == ("stringValue", value.encode("utf-8", "replace").decode())


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_a_path_of_any_characters_makes_one_request_of_json(path: str) -> None:
    written = json.loads(encode([span for trace in spans(2, path) for span in trace.spans()], PROCESS))
    assert len(written["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 2
