"""Traces: where they go, and which are kept."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from gateway.config import values
from gateway.config.fields import Block, Count, Duration, DurationOrZero, HeaderValue, KeptHeaderName, Name, Secret


class KeepSlowerConfig(Block):
    """How slow a request is whose trace is kept."""

    ttft_s: DurationOrZero = Field(
        default=2.0, validation_alias="ttft", description="Longest usual wait for the first token; 0 for any."
    )
    duration_s: DurationOrZero = Field(
        default=0.0, validation_alias="duration", description="Longest usual request; 0 for any."
    )


class KeepRuleConfig(Block):
    """Requests of one class, all of whose traces are kept; every condition that is given must be met."""

    pool: Name | None = Field(default=None, description="The pool.", examples=["llama-3-8b"])
    model: Name | None = Field(
        default=None, description="The model as the client named it, a pool's name or an alias.", examples=["payments"]
    )
    header: dict[KeptHeaderName, HeaderValue] = Field(
        default_factory=dict[str, str],
        description="Headers of the client's request and their exact values.",
        examples=[{"x-team": "payments"}],
    )
    key: Secret | None = Field(
        default=None,
        description="The client's key, as it sends it: `Authorization: Bearer KEY`.",
        examples=["${PAYMENTS_KEY}"],
    )
    min_prompt_tokens: Count | None = Field(
        default=None, description="Least tokens of the prompt; estimated where the engine tells none."
    )
    min_tokens: Count | None = Field(
        default=None, description="Least tokens of prompt and answer together; likewise.", examples=[10_000]
    )

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if self == KeepRuleConfig.model_construct():
            raise ValueError("needs a condition; for every trace set telemetry.sample_ratio to 1")
        return self


class TelemetryConfig(Block):
    """Traces: where they go, and which are kept."""

    otlp_endpoint: Annotated[str, AfterValidator(values.collector_url)] | None = Field(
        default=None,
        description="Base URL of an OTLP receiver: a collector, Tempo, Jaeger. Without one, and without OTEL_* "
        "variables that name one, no traces are made.",
        examples=["http://tempo:4318"],
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.1, description="Share of the new traces that are kept whatever happens, engine spans included."
    )
    trust_parent: bool = Field(
        default=True, description="Whether a client's traceparent is taken over: its trace, and whether it is sampled."
    )
    keep_slower_than: KeepSlowerConfig = KeepSlowerConfig()
    keep: tuple[KeepRuleConfig, ...] = Field(
        default=(), description="Classes of requests whose traces are all kept.", examples=[[{"pool": "payments"}]]
    )
    tail_per_second: Count = Field(
        default=20, description="Most traces a second that are kept for errors, retries, slowness and stalls."
    )
    stall_s: Duration = Field(
        default=1.0, validation_alias="stall", description="A silence inside an answer that is told as a stall."
    )
