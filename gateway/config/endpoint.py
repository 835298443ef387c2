"""One engine: where it is, what it speaks, what it is sent."""

from __future__ import annotations

from typing import Annotated, Literal, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict

from adapters.types import EngineName
from gateway.config import values
from gateway.config.fields import Block, Count, HeaderName, HeaderValue, Label, Secret

Engine = Literal["auto", EngineName]


def _has_twins(value: object) -> bool:
    """Whether a mapping has keys that differ in case only."""
    if not isinstance(value, dict):
        return False
    names = [str(name).lower() for name in cast(dict[object, object], value)]
    return len(set(names)) < len(names)


def _without_default(schema: JsonDict) -> None:
    schema.pop("default", None)


class EndpointConfig(Block):
    """One engine process at one base URL."""

    id: Annotated[str, AfterValidator(values.endpoint_id)] = Field(
        default="",
        description="Names the endpoint in headers, metrics and the operator's API; POOL-INDEX if not given.",
        examples=["gpu-1"],
        json_schema_extra=_without_default,
    )
    url: Annotated[str, AfterValidator(values.endpoint_url)] = Field(
        description="The engine's base URL, with or without /v1; a path with another version, as /api/v3, is kept.",
        examples=["http://10.0.0.1:8000", "https://engine.example.com/v1"],
    )
    engine: Engine = Field(default="auto", description="What the engine speaks; auto asks it.")
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The engine's own name of the model; the pool's name if not given.",
        examples=["meta-llama/Meta-Llama-3-8B-Instruct"],
    )
    api_key: Secret | None = Field(
        default=None,
        description="Our credential for the engine, sent as a bearer token.",
        examples=["${ENGINE_API_KEY}"],
    )
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict[str, str],
        repr=False,  # a header may be a credential
        description="Headers sent with each request to the engine.",
        examples=[{"x-tenant": "chat"}],
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Share of the traffic under weighted policies.",
    )
    label: Label | None = Field(
        default=None,
        description="Names a group of endpoints, for pools.*.routing.rules and canary.",
        examples=["canary"],
    )
    tier: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0, description="Used only when every endpoint of the lower tiers is out or full."
    )
    overflow_at: Count | None = Field(
        default=None,
        description="So many requests of ours in flight fill it, for the next tier; and so does a queue in its engine.",
        examples=[32],
    )
    weights: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="A label: endpoints with equal labels serve the same model in the same precision.",
        examples=["llama-3-8b-bf16"],
    )
    transport: Literal["native", "httpx2"] = Field(
        default="native", description="Carries the requests; httpx2 for HTTP/2 and forward proxies."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("headers", mode="before")
    @classmethod
    def _names_differ_in_more_than_case(cls, value: object) -> object:
        if _has_twins(value):
            raise ValueError("names a header twice (case does not count): keep one")
        return value

    @field_validator("headers")
    @classmethod
    def _one_credential(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if "authorization" in value and info.data.get("api_key") is not None:
            raise ValueError("has authorization although api_key is set: keep one of them")
        return value

    @property
    def scheme(self) -> str:
        return self._parts.scheme

    @property
    def host(self) -> str:
        """Host name or address, an IPv6 one without its brackets."""
        return self._parts.hostname or ""

    @property
    def port(self) -> int:
        """The URL's port, else the scheme's."""
        return self._parts.port or (443 if self.scheme == "https" else 80)

    @property
    def base_path(self) -> str:
        """What goes before the path of a request: ``""`` or, as an example, ``/api/v3``."""
        return self._parts.path

    @property
    def has_version(self) -> bool:
        """Whether ``base_path`` ends in a version: ``/chat/completions`` follows it, not ``/v1/chat/completions``."""
        return values.VERSIONED_PATH.search(self.base_path) is not None

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url)
