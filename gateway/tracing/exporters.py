"""Which exporter the configuration and the ``OTEL_*`` variables ask for. What both say, the configuration decides."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Literal, NamedTuple, cast

from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.util.re import parse_env_headers

from gateway.config import TelemetryConfig
from policies.sampling import HeadSampling

from ..extras import how_to_install
from .otlp_json import OtlpJsonExporter, Target

log = logging.getLogger("weir.tracing")

Protocol = Literal["http/json", "http/protobuf", "grpc"]

_PROTOCOLS: tuple[Protocol, ...] = ("http/json", "http/protobuf", "grpc")
_LOCAL_HTTP = "http://localhost:4318"
_LOCAL_GRPC = "http://localhost:4317"
_TIMEOUT_S = 10.0


class Chosen(NamedTuple):
    """What was asked for.

    Attributes:
        exporter: ``otlp``, or the name of another exporter that is installed, as ``console``.
        protocol: Of ``otlp``.
        endpoint: URL of ``otlp``, with the path for HTTP.
    """

    exporter: str
    protocol: Protocol = "http/json"
    endpoint: str = ""


def choose(config: TelemetryConfig, environ: Mapping[str, str]) -> Chosen | None:
    """Returns what is asked for; None if no traces are.

    Traces are made if an endpoint is named, or an exporter by ``OTEL_TRACES_EXPORTER``, unless that says ``none`` or
    ``OTEL_SDK_DISABLED`` is true.
    """
    named = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    endpoint = config.otlp_endpoint or _of_traces(environ, "ENDPOINT")
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or named == "none":
        return None
    if not named and not endpoint:
        return None
    if named not in ("", "otlp"):
        return Chosen(named)
    protocol = _protocol(_of_traces(environ, "PROTOCOL"))
    if protocol == "grpc":
        return Chosen("otlp", protocol, endpoint or _LOCAL_GRPC)
    if config.otlp_endpoint is None and (whole := environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()):
        return Chosen("otlp", protocol, whole)
    return Chosen("otlp", protocol, (endpoint or _LOCAL_HTTP).rstrip("/") + "/v1/traces")


def head_sampling(config: TelemetryConfig, environ: Mapping[str, str]) -> HeadSampling:
    """Returns how new traces are sampled: ``sample_ratio`` if the file has it, else by ``OTEL_TRACES_SAMPLER``."""
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratios = {
        "always_on": 1.0,
        "always_off": 0.0,
        "traceidratio": _ratio(environ.get("OTEL_TRACES_SAMPLER_ARG")),
    }
    kind = sampler.removeprefix("parentbased_")
    if "sample_ratio" in config.model_fields_set or not sampler:
        return HeadSampling(config.sample_ratio, config.trust_parent)
    if kind not in ratios:
        log.warning("OTEL_TRACES_SAMPLER=%s is not known here; traces are sampled by telemetry.sample_ratio", sampler)
        return HeadSampling(config.sample_ratio, config.trust_parent)
    return HeadSampling(ratios[kind], config.trust_parent, follows_parent=sampler.startswith("parentbased_"))


def make(chosen: Chosen, environ: Mapping[str, str]) -> SpanExporter:
    """Makes the exporter.

    Raises:
        LookupError: It is not installed, or its certificates cannot be read; the message says what to do.
    """
    if chosen.exporter != "otlp":
        found = entry_points(group="opentelemetry_traces_exporter", name=chosen.exporter)
        for entry in found:
            return cast("Callable[[], SpanExporter]", entry.load())()
        raise LookupError(f"OTEL_TRACES_EXPORTER={chosen.exporter}: no such exporter is installed")
    if chosen.protocol == "http/json":
        target = Target(
            chosen.endpoint,
            tuple(parse_env_headers(_of_traces(environ, "HEADERS"), liberal=True).items()),
            _positive(_of_traces(environ, "TIMEOUT"), _TIMEOUT_S),
            _of_traces(environ, "COMPRESSION").lower() == "gzip",
            _of_traces(environ, "CERTIFICATE"),
            (_of_traces(environ, "CLIENT_CERTIFICATE"), _of_traces(environ, "CLIENT_KEY")),
        )
        try:
            return OtlpJsonExporter(target)
        except OSError as error:
            named = "OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY"
            raise LookupError(f"{named} must name files of certificates in PEM: {error}") from error
    kind = "grpc" if chosen.protocol == "grpc" else "http"
    try:
        module = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter")
    except ImportError:
        raise LookupError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={chosen.protocol} needs the extra otlp: {how_to_install('otlp')}; "
            "http/json needs nothing"
        ) from None
    exporter = cast("Callable[..., SpanExporter]", module.OTLPSpanExporter)
    return exporter(endpoint=chosen.endpoint)  # headers, timeout, certificates: the SDK reads the same variables


def _of_traces(environ: Mapping[str, str], name: str) -> str:
    """An OTLP variable: the one for traces, else the one for all signals, else ""."""
    own = environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "").strip()
    return own or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()


def _protocol(text: str) -> Protocol:
    for protocol in _PROTOCOLS:
        if text == protocol:
            return protocol
    if text:
        log.warning("OTEL_EXPORTER_OTLP_PROTOCOL=%s is not known here; traces are sent as http/json", text)
    return "http/json"


def _ratio(text: str | None) -> float:
    """The share of a sampler's argument, 1 without a valid one: as in the SDK."""
    value = _positive(text or "", 1.0, least=0.0)
    return value if value <= 1 else 1.0


def _positive(text: str, otherwise: float, least: float = 1e-3) -> float:
    try:
        value = float(text)
    except ValueError:
        return otherwise
    return value if value >= least else otherwise
