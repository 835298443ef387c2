"""The endpoints of one model, and how they are used."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, GetJsonSchemaHandler, field_validator
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from gateway.config.attempts import HedgeConfig, RetriesConfig, TimeoutsConfig
from gateway.config.endpoint import EndpointConfig
from gateway.config.fields import Block, Count, Duration, Name
from gateway.config.health import HealthConfig
from gateway.config.routing import RoutingConfig


class _UrlInstead:
    """Tells the JSON schema that an endpoint may be written as its URL alone."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        url = {"type": "string", "description": "Short form: the URL alone.", "examples": ["http://10.0.0.1:8000"]}
        return {"anyOf": [url, handler(schema)]}


class SloConfig(Block):
    """How quick answers should be; routing by latency keeps to it where it can."""

    ttft_s: Duration = Field(default=2.0, validation_alias="ttft", description="To the first token.")
    itl_s: Duration = Field(default=0.1, validation_alias="itl", description="Between two tokens after it.")


class EmbeddingsBatchConfig(Block):
    """How small embedding requests are gathered into one request to an engine."""

    inputs: Annotated[int, Field(ge=0, le=2048)] = Field(
        default=0,
        description="Most inputs of a joined request, at least 2; 0 sends every request alone.",
        examples=[32],
    )
    wait_s: Duration = Field(
        default=0.005, validation_alias="wait", description="How long the first request of a batch waits for others."
    )
    tokens: Count = Field(default=8192, description="Most tokens of a joined request, estimated from its bytes.")

    @field_validator("inputs")
    @classmethod
    def _more_than_one(cls, value: int) -> int:
        if value == 1:
            raise ValueError("must be 0 (off) or at least 2")
        return value


class CaptureConfig(Block):
    """What people say and models answer, in the access log: personal data, and off."""

    prompts: bool = Field(default=False, description="The beginning of each request's body, as `prompt`.")
    answers: bool = Field(default=False, description="The beginning of each answer's text, as `answer`.")
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1000, description="Most characters of either; the rest is left out."
    )


class PoolConfig(Block):
    """The endpoints that serve one model name."""

    # The key of the pool in the file, so no key in it: the alias only keeps `name:` from being one.
    name: SkipJsonSchema[str] = Field(default="", validation_alias="<key of the pool>")
    aliases: tuple[Name, ...] = Field(
        default=(), description="Further names the pool answers to.", examples=[["default"]]
    )
    endpoints: tuple[Annotated[EndpointConfig, _UrlInstead()], ...] = Field(
        min_length=1, description="The engines; at least one."
    )
    timeouts: TimeoutsConfig = TimeoutsConfig()
    health: HealthConfig = HealthConfig()
    retries: RetriesConfig = RetriesConfig()
    hedge: HedgeConfig = HedgeConfig()
    routing: RoutingConfig = RoutingConfig()
    slo: SloConfig = SloConfig()
    embeddings_batch: EmbeddingsBatchConfig = EmbeddingsBatchConfig()
    capture: CaptureConfig = CaptureConfig()
    resume: bool = Field(
        default=True,
        description="Let another endpoint go on with a stream that an engine broke off, where their weights are equal.",
    )
    forward_authorization: bool = Field(
        default=False, description="Pass the client's Authorization header on to the engines."
    )
    required: bool = Field(
        default=True, description="Whether /readyz needs an endpoint of this pool that takes traffic."
    )

    @field_validator("endpoints")
    @classmethod
    def _overflows_somewhere(cls, endpoints: tuple[EndpointConfig, ...]) -> tuple[EndpointConfig, ...]:
        last = max(endpoint.tier for endpoint in endpoints)
        if any(endpoint.overflow_at is not None and endpoint.tier == last for endpoint in endpoints):
            raise ValueError("has overflow_at, but no endpoint of a higher tier: give one a higher tier, or remove it")
        return endpoints
