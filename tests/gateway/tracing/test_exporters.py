"""What the configuration and the OTEL_* variables ask for together."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from gateway.config import Config, EndpointConfig, PoolConfig, TelemetryConfig
from gateway.fleet import Fleet
from gateway.flight import FlightRecord
from gateway.request_head import read_head
from gateway.tracing import Tracing
from gateway.tracing.exporters import Chosen, choose, head_sampling, make
from gateway.tracing.otlp_json import OtlpJsonExporter, Target
from policies.sampling import HeadSampling

ENDPOINT, TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


@pytest.mark.parametrize(
    ("endpoint", "environ", "chosen"),
    [
        (None, {}, None),
        ("http://t:4318", {}, Chosen("otlp", "http/json", "http://t:4318/v1/traces")),
        ("http://t:4318", {ENDPOINT: "http://e:1"}, Chosen("otlp", "http/json", "http://t:4318/v1/traces")),
        ("http://t:4318", {TRACES: "http://e:1/x"}, Chosen("otlp", "http/json", "http://t:4318/v1/traces")),
        (None, {ENDPOINT: "http://e:1/base/"}, Chosen("otlp", "http/json", "http://e:1/base/v1/traces")),
        (None, {TRACES: "http://e:1/x"}, Chosen("otlp", "http/json", "http://e:1/x")),
        (None, {ENDPOINT: "http://e:1", TRACES: "http://e:2/x"}, Chosen("otlp", "http/json", "http://e:2/x")),
        (None, {ENDPOINT: " "}, None),
        (None, {"OTEL_TRACES_EXPORTER": "otlp"}, Chosen("otlp", "http/json", "http://localhost:4318/v1/traces")),
        (None, {"OTEL_TRACES_EXPORTER": "console"}, Chosen("console")),
        ("http://t:4318", {"OTEL_TRACES_EXPORTER": "none"}, None),
        ("http://t:4318", {"OTEL_SDK_DISABLED": "True"}, None),
        ("http://t:4318", {"OTEL_SDK_DISABLED": "false"}, Chosen("otlp", "http/json", "http://t:4318/v1/traces")),
        ("http://t:4317", {PROTOCOL: "grpc"}, Chosen("otlp", "grpc", "http://t:4317")),
        (None, {PROTOCOL: "grpc", ENDPOINT: "http://e:1"}, Chosen("otlp", "grpc", "http://e:1")),
        (
            "http://t:4318",
            {PROTOCOL: "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            Chosen("otlp", "http/protobuf", "http://t:4318/v1/traces"),
        ),
        ("http://t:4318", {PROTOCOL: "carrier/pigeon"}, Chosen("otlp", "http/json", "http://t:4318/v1/traces")),
        (None, {ENDPOINT: "tempo:4318"}, None),
        (None, {ENDPOINT: "http://e:1", TRACES: "tempo:4318"}, Chosen("otlp", "http/json", "http://e:1/v1/traces")),
        (None, {ENDPOINT: "tempo:4317", PROTOCOL: "grpc"}, Chosen("otlp", "grpc", "tempo:4317")),
    ],
)
def test_where_traces_go(endpoint: str | None, environ: Mapping[str, str], chosen: Chosen | None) -> None:
    assert choose(TelemetryConfig(otlp_endpoint=endpoint), environ) == chosen


@pytest.mark.parametrize(
    ("file", "sampler", "argument", "sampling"),
    [
        ({}, "", "", HeadSampling(0.1)),
        ({"sample_ratio": 0.1}, "always_on", "", HeadSampling(0.1)),  # the file decides
        ({}, "always_on", "", HeadSampling(1.0, follows_parent=False)),
        ({}, "always_off", "", HeadSampling(0.0, follows_parent=False)),
        ({}, "traceidratio", "0.25", HeadSampling(0.25, follows_parent=False)),
        ({}, "parentbased_traceidratio", "0.25", HeadSampling(0.25)),
        ({}, "parentbased_traceidratio", "x", HeadSampling(1.0)),
        ({}, "parentbased_traceidratio", "0", HeadSampling(0.0)),
        ({}, "parentbased_traceidratio", "7", HeadSampling(1.0)),
        ({"trust_parent": False}, "parentbased_always_on", "", HeadSampling(1.0, trusts_parent=False)),
        ({}, "jaeger_remote", "", HeadSampling(0.1)),
    ],
)
def test_how_new_traces_are_sampled(file: Any, sampler: str, argument: str, sampling: HeadSampling) -> None:
    environ = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert head_sampling(TelemetryConfig(**file), environ) == sampling


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            ENDPOINT,
            "tempo:4318",
            "is no URL that begins with http:// or https:// and names a host; no receiver of traces",
        ),
        (ENDPOINT, "http://", "is no URL that begins with http:// or https:// and names a host; no receiver of traces"),
        (PROTOCOL, "http", "is none of http/json, http/protobuf, grpc; http/json"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http", "is none of http/json, http/protobuf, grpc; http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "is no number of 0.001 or more; 10"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0", "is no number of 0.001 or more; 10"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "inf", "is no number of 0.001 or more; 10"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate", "is none of gzip, none; none"),
        ("OTEL_TRACES_SAMPLER_ARG", "50%", "is no number from 0 to 1; 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "50", "is no number from 0 to 1; 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan", "is no number from 0 to 1; 1"),
        (
            "OTEL_TRACES_SAMPLER",
            "half",
            "is none of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, "
            "parentbased_traceidratio; telemetry.sample_ratio",
        ),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "2k", "is no whole number above 0; 2048"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0.5", "is no whole number above 0; 500"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1", "is no whole number above 0; 256"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "is more than 2048; 2048"),
        ("OTEL_SDK_DISABLED", "1", "is none of true, false; false"),
    ],
)
async def test_a_value_that_means_nothing_is_told_once_with_what_is_used_instead(
    name: str, value: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(pools={"m": PoolConfig(endpoints=(EndpointConfig(url="http://127.0.0.1:9"),))})
    environ = {ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    tracing = Tracing(config, Fleet(config), {**environ, name: value})
    tracing.start()
    await tracing.stop()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"{name}={value} {told} is used"]


async def test_values_that_mean_something_are_told_nothing_about(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(pools={"m": PoolConfig(endpoints=(EndpointConfig(url="http://127.0.0.1:9"),))})
    environ = {
        ENDPOINT: "https://collector.example.com:4318",
        PROTOCOL: "http/json",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "GZIP",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_SCHEDULE_DELAY": " 5 ",
        "OTEL_SDK_DISABLED": "",
    }
    tracing = Tracing(config, Fleet(config), environ)
    tracing.start()
    await tracing.stop()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_what_is_told_of_an_endpoint_holds_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    assert choose(TelemetryConfig(), {ENDPOINT: "user:hidden@tempo:4318"}) is None
    assert "tempo:4318" in caplog.text
    assert "hidden" not in caplog.text


def test_the_exporters_own_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Target] = []
    monkeypatch.setattr("gateway.tracing.exporters.OtlpJsonExporter", made.append)
    chosen = Chosen("otlp", "http/json", "http://t/v1/traces")
    make(chosen, {})
    make(
        chosen,
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "x-never=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "Authorization=Basic%20abc,x-scope-orgid=7",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "own.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": "own.key",
        },
    )
    make(chosen, {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_EXPORTER_OTLP_COMPRESSION": "none"})
    headers = (("authorization", "Basic abc"), ("x-scope-orgid", "7"))
    assert made == [
        Target("http://t/v1/traces"),
        Target("http://t/v1/traces", headers, 3.0, True, "ca.pem", ("own.pem", "own.key")),
        Target("http://t/v1/traces"),
    ]


@pytest.mark.parametrize("variable", ["CERTIFICATE", "CLIENT_CERTIFICATE"])
def test_certificates_that_cannot_be_read_are_named(tmp_path: Path, variable: str) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    environ = {f"OTEL_EXPORTER_OTLP_{variable}": str(broken)}
    with pytest.raises(LookupError, match="must name files of certificates in PEM"):
        make(Chosen("otlp", "http/json", "https://t/v1/traces"), environ)
    make(Chosen("otlp", "http/json", "http://t/v1/traces"), environ)


def test_any_exporter_that_is_installed_can_be_named() -> None:
    assert isinstance(make(Chosen("console"), {}), ConsoleSpanExporter)
    assert isinstance(make(Chosen("otlp", "http/json", "https://t/v1/traces"), {}), OtlpJsonExporter)
    with pytest.raises(LookupError, match="OTEL_TRACES_EXPORTER=zipkin: no such exporter is installed"):
        make(Chosen("zipkin"), {})


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_protocol_of_the_extra_says_so_where_that_is_missing(monkeypatch: pytest.MonkeyPatch, protocol: Any) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(LookupError, match=r"needs the extra otlp: run .*pip install -e '\.\[otlp\]'"):
        make(Chosen("otlp", protocol, "http://t:4317"), {})


class Kept(SpanExporter):
    """Somebody's own."""

    def __init__(self, result: SpanExportResult | Exception) -> None:
        self.spans: list[ReadableSpan] = []
        self.ended = False
        self._result = result

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def shutdown(self) -> None:
        self.ended = True


@pytest.mark.parametrize(
    ("result", "counted"),
    [
        (SpanExportResult.SUCCESS, "exported"),
        (SpanExportResult.FAILURE, "export_failed"),
        (RuntimeError("theirs"), "export_failed"),
    ],
)
async def test_an_exporter_of_ones_own_gets_the_sdks_spans(result: Any, counted: str) -> None:
    config = Config(pools={"m": PoolConfig(endpoints=(EndpointConfig(url="http://127.0.0.1:9"),))})
    exporter = Kept(result)
    tracing = Tracing(config, Fleet(config), {"OTEL_TRACES_SAMPLER": "always_on"}, exporter)
    tracing.start()
    record = FlightRecord("r", "GET", "/v1/x", 0.0, 1.0, [], done_s=2.0, outcome="client_error", status=404)
    scope: dict[str, Any] = {"headers": [(b"host", b"[::1]:81")], "http_version": "1.1", "scheme": "https"}
    tracing.begin(record, read_head(scope), scope)
    tracing.observe((record,))
    await tracing.stop()
    (span,) = exporter.spans
    assert exporter.ended
    assert span.name == "GET /v1/*"
    assert span.attributes is not None
    assert (span.attributes["server.address"], span.attributes["server.port"]) == ("::1", 81)
    assert span.to_json()
    assert {name: count for name, count in tracing.counts.items() if count} == {counted: 1}
    tracing.observe((record,))  # after the end nothing is made, and nothing fails
    assert len(exporter.spans) == 1


async def test_a_gateway_without_its_exporter_serves_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(pools={"m": PoolConfig(endpoints=(EndpointConfig(url="http://127.0.0.1:9"),))})
    tracing = Tracing(config, Fleet(config), {"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_TRACES_SAMPLER": "always_on"})
    tracing.start()
    record = FlightRecord("r", "GET", "/v1/x", 0.0, 1.0, [])
    scope: dict[str, Any] = {"headers": [], "http_version": "1.1", "scheme": "http"}
    tracing.begin(record, read_head(scope), scope)
    tracing.observe((record,))
    await tracing.stop()
    assert (record.keep_reason, record.sampled) == (None, False)
    assert "no traces are made: OTEL_TRACES_EXPORTER=zipkin" in caplog.text
