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
from . import variables
from .otlp_json import OtlpJsonExporter, Target
from .variables import of_traces, text

log = logging.getLogger("weir.tracing")

Protocol = Literal["http/json", "http/protobuf", "grpc"]

_PROTOCOLS: tuple[Protocol, ...] = ("http/json", "http/protobuf", "grpc")
_LOCAL_HTTP = "http://localhost:4318"
_LOCAL_GRPC = "http://localhost:4317"
_TIMEOUT_S = 10.0
_FOR_TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_FOR_ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
_BY_PARENT = "parentbased_"
_KINDS = ("always_on", "always_off", "traceidratio")
_SAMPLERS = (*_KINDS, *(f"{_BY_PARENT}{kind}" for kind in _KINDS))
_OWN_SAMPLER = "telemetry.sample_ratio"


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
    named = text(environ, "OTEL_TRACES_EXPORTER")
    if named == "none" or variables.choice(environ, "OTEL_SDK_DISABLED", ("true", "false"), "false") == "true":
        return None
    if named not in ("", "otlp"):
        return Chosen(named)
    endpoints = {_FOR_TRACES: "", _FOR_ALL: config.otlp_endpoint or ""}
    if config.otlp_endpoint is None:
        endpoints = {name: text(environ, name) for name in endpoints}
    if not named and not any(endpoints.values()):
        return None
    protocol = _protocol(environ)
    if protocol == "grpc":  # which takes HOST:PORT as well
        return Chosen("otlp", protocol, endpoints[_FOR_TRACES] or endpoints[_FOR_ALL] or _LOCAL_GRPC)
    usable = {name: url for name, url in endpoints.items() if variables.is_url(url)}
    chosen: Chosen | None = None
    if _FOR_TRACES in usable:
        chosen = Chosen("otlp", protocol, usable[_FOR_TRACES])
    elif usable or named:
        chosen = Chosen("otlp", protocol, usable.get(_FOR_ALL, _LOCAL_HTTP).rstrip("/") + "/v1/traces")
    for name, said in endpoints.items():
        if said and name not in usable:
            variables.tell_no_url(name, said, "no receiver of traces" if chosen is None else chosen.endpoint)
    return chosen


def head_sampling(config: TelemetryConfig, environ: Mapping[str, str]) -> HeadSampling:
    """Returns how new traces are sampled: ``sample_ratio`` if the file has it, else by ``OTEL_TRACES_SAMPLER``."""
    own = HeadSampling(config.sample_ratio, config.trust_parent)
    if "sample_ratio" in config.model_fields_set:
        return own
    sampler = variables.choice(environ, "OTEL_TRACES_SAMPLER", _SAMPLERS, _OWN_SAMPLER)
    match sampler.removeprefix(_BY_PARENT):
        case "always_on":
            ratio = 1.0
        case "always_off":
            ratio = 0.0
        case "traceidratio":
            ratio = variables.number(environ, "OTEL_TRACES_SAMPLER_ARG", 1.0, least=0.0, most=1.0)
        case _:
            return own
    return HeadSampling(ratio, config.trust_parent, follows_parent=sampler.startswith(_BY_PARENT))


def make(chosen: Chosen, environ: Mapping[str, str]) -> SpanExporter:
    """Makes the exporter.

    Raises:
        LookupError: It is not installed, or its certificates cannot be read; the message says what to do.
    """

    def said(name: str) -> str:
        return text(environ, of_traces(environ, name))

    if chosen.exporter != "otlp":
        found = entry_points(group="opentelemetry_traces_exporter", name=chosen.exporter)
        for entry in found:
            return cast("Callable[[], SpanExporter]", entry.load())()
        raise LookupError(f"OTEL_TRACES_EXPORTER={chosen.exporter}: no such exporter is installed")
    if chosen.protocol == "http/json":
        target = Target(
            chosen.endpoint,
            tuple(parse_env_headers(said("HEADERS"), liberal=True).items()),
            variables.number(environ, of_traces(environ, "TIMEOUT"), _TIMEOUT_S, least=1e-3),
            variables.choice(environ, of_traces(environ, "COMPRESSION"), ("gzip", "none"), "none") == "gzip",
            said("CERTIFICATE"),
            (said("CLIENT_CERTIFICATE"), said("CLIENT_KEY")),
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


def _protocol(environ: Mapping[str, str]) -> Protocol:
    said = variables.choice(environ, of_traces(environ, "PROTOCOL"), _PROTOCOLS, "http/json")
    return next(protocol for protocol in _PROTOCOLS if protocol == said)
