"""The configuration: what every key means, its default and its bounds.

The keys of the file are aliases; the attributes carry units. Reading a file with all its mistakes is
``config.file``'s; code and tests may also build these models directly, by attribute name and in plain numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Final, Literal, Self, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError

from adapters.types import EngineName
from gateway.config import values
from gateway.config.names import Conflict, PoolNames, conflicts, derived_endpoint_id
from gateway.config.references import KeepNames, PoolReferences, RuleNames, missing_in_keep, missing_in_routing
from gateway.config.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    parse_duration_s,
    parse_size_bytes,
)

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
CONFLICT: Final = "conflict"  # the type of the validation error for a name used twice, or for what is not there


def _duration_s(value: object) -> object:
    return parse_duration_s(value) if isinstance(value, str) else value


def _size_bytes(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


def _more_than_zero(value: float) -> float:
    if not value > 0:
        raise ValueError("must be more than 0")
    return value


def _not_negative(value: float) -> float:
    if not value >= 0:
        raise ValueError("must not be less than 0")
    return value


def _credential(value: SecretStr) -> SecretStr:
    return SecretStr(values.credential(value.get_secret_value()))


def _has_twins(value: object) -> bool:
    """Whether a mapping has keys that differ in case only."""
    if not isinstance(value, dict):
        return False
    names = [str(name).lower() for name in cast(dict[object, object], value)]
    return len(set(names)) < len(names)


def _without_default(schema: JsonDict) -> None:
    schema.pop("default", None)


class _UrlInstead:
    """Tells the JSON schema that an endpoint may be written as its URL alone."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        url = {"type": "string", "description": "Short form: the URL alone.", "examples": ["http://10.0.0.1:8000"]}
        return {"anyOf": [url, handler(schema)]}


_DURATION_SCHEMA: Final[JsonSchemaValue] = {
    "type": "string",
    "pattern": DURATION_PATTERN,
    "examples": ["500ms", "2s", "30m"],
}
_SIZE_SCHEMA: Final[JsonSchemaValue] = {"type": "string", "pattern": SIZE_PATTERN, "examples": ["256KiB", "64MiB"]}

Duration = Annotated[
    float,
    BeforeValidator(_duration_s),
    AfterValidator(_more_than_zero),
    WithJsonSchema(_DURATION_SCHEMA),
]
DurationOrZero = Annotated[
    float,
    BeforeValidator(_duration_s),
    AfterValidator(_not_negative),
    WithJsonSchema({**_DURATION_SCHEMA, "type": ["string", "integer"], "minimum": 0, "maximum": 0}),
]
Size = Annotated[
    int,
    BeforeValidator(_size_bytes),
    AfterValidator(_more_than_zero),
    WithJsonSchema(_SIZE_SCHEMA),
]
Count = Annotated[int, Field(ge=1)]
Secret = Annotated[SecretStr, AfterValidator(_credential)]
Name = Annotated[str, AfterValidator(values.model_name)]
Address = Annotated[str, AfterValidator(values.address)]
HeaderName = Annotated[str, AfterValidator(values.header_name)]
SeenHeaderName = Annotated[str, AfterValidator(values.seen_header_name)]
KeptHeaderName = Annotated[str, AfterValidator(values.kept_header_name)]
HeaderValue = Annotated[str, AfterValidator(values.header_value)]
Label = Annotated[str, AfterValidator(values.endpoint_id)]
Engine = Literal["auto", EngineName]


class _Block(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,  # the input may be a credential
    )


class EndpointConfig(_Block):
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


class TimeoutsConfig(_Block):
    """Four timers of an attempt, and of connecting."""

    connect_s: Duration = Field(default=2.0, validation_alias="connect", description="To a connection, TLS included.")
    head_s: Duration = Field(
        default=60.0, validation_alias="head", description="Of a stream: from the sent request to the response's head."
    )
    first_token_s: Duration = Field(
        default=60.0,
        validation_alias="first_token",
        description="Of a stream: from the sent request to the first output.",
    )
    stall_s: Duration = Field(default=30.0, validation_alias="stall", description="Between two outputs of a stream.")
    total_s: Duration = Field(
        default=1800.0, validation_alias="total", description="A whole request, arrival to last byte."
    )
    learn: bool = Field(
        default=True,
        description="Whether first_token and stall are shortened to what is unheard of in this pool, for a request "
        "that later ones have overtaken at its endpoint.",
    )

    @cached_property
    def shortest_s(self) -> float:
        """The shortest limit of those that begin to count while an attempt runs."""
        return min(self.head_s, self.first_token_s, self.stall_s)


class HealthConfig(_Block):
    """When an endpoint is ejected and readmitted."""

    interval_s: Duration = Field(
        default=5.0, validation_alias="interval", description="Between two probes of an endpoint."
    )
    timeout_s: Duration = Field(default=2.0, validation_alias="timeout", description="For the answer to a probe.")
    failures: Count = Field(default=3, description="Failed probes, or failed requests, in a row that eject.")
    successes: Count = Field(default=1, description="Good probes in a row that readmit.")
    eject_s: Duration = Field(
        default=10.0,
        validation_alias="eject",
        description="First ejection; one soon after the return lasts twice as long.",
    )
    eject_max_s: Duration = Field(
        default=300.0,
        validation_alias="eject_max",
        description="Longest such ejection.",
    )
    min_healthy: float = Field(
        default=1,
        gt=0,
        allow_inf_nan=False,
        description="So many endpoints are never ejected; less than 1 is a share of the pool's.",
        examples=[2, 0.5],
    )

    @field_validator("min_healthy")
    @classmethod
    def _count_or_share(cls, value: float) -> float:
        if value > 1 and value % 1:
            raise ValueError("must be a whole number, or a share less than 1")
        return value

    @model_validator(mode="after")
    def _ejection_within_its_bound(self) -> Self:
        if self.eject_s > self.eject_max_s:
            raise ValueError(f"eject must not be more than eject_max ({format_duration(self.eject_max_s)})")
        return self


class RetriesConfig(_Block):
    """How often a request is tried before its first output."""

    attempts: Annotated[int, Field(ge=1, le=10)] = Field(default=3, description="Attempts, counting the first.")
    budget_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2,
        validation_alias="budget",
        description="Further attempts as a share of the pool's requests over 10 s; 3 a second are always allowed.",
    )


class RuleConditionsConfig(_Block):
    """One kind of request; every condition that is given must be met."""

    header: dict[SeenHeaderName, HeaderValue] = Field(
        default_factory=dict[str, str],
        description="Headers of the client's request and their exact values.",
        examples=[{"x-team": "payments"}],
    )
    model: Name | None = Field(
        default=None,
        description="The model as the client named it: the pool's name or an alias of it.",
        examples=["payments"],
    )
    min_prompt_tokens: Count | None = Field(default=None, description="Least tokens of the prompt, estimated.")
    max_prompt_tokens: Count | None = Field(default=None, description="Most tokens of the prompt, estimated.")

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        least, most = self.min_prompt_tokens, self.max_prompt_tokens
        if least is not None and most is not None and least > most:
            raise ValueError("min_prompt_tokens must not be more than max_prompt_tokens")
        return self


class RoutingRuleConfig(_Block):
    """Requests of one kind go to the endpoints of one label."""

    when: RuleConditionsConfig = RuleConditionsConfig()
    to: Label = Field(description="The endpoints' label.", examples=["long"])


class CanaryConfig(_Block):
    """A share of the sessions goes to the endpoints of one label."""

    label: Label = Field(description="The endpoints' label.", examples=["canary"])
    share: Annotated[float, Field(ge=0, le=1)] = Field(description="Their share of the sessions.", examples=[0.05])


class HedgeConfig(_Block):
    """A second attempt beside a first one that is late with its first output; the first to give one goes on."""

    share: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0, description="Most second attempts, as a share of the pool's requests; 0 for none.", examples=[0.05]
    )
    quantile: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        default=0.95, description="Late is what takes longer than this share of the requests with such prompts."
    )
    at_least_s: Duration = Field(
        default=0.05, validation_alias="at_least", description="Nothing is late that has not taken so long."
    )


class RoutingConfig(_Block):
    """Which endpoint a request goes to."""

    policy: Literal[
        "latency", "least_in_flight", "peak_ewma", "power_of_two", "prefix", "random", "round_robin", "session"
    ] = Field(default="latency", description="What chooses among the endpoints that may take a request.")
    header: SeenHeaderName = Field(
        default="x-session-id",
        description="The client's header that names its session; without it the body's user does.",
    )
    prefix_memory_bytes: Size = Field(
        default=33_554_432,
        validation_alias="prefix_memory",
        description="For which prefixes each endpoint was sent, in each worker; taken only by policies that ask.",
    )
    rules: tuple[RoutingRuleConfig, ...] = Field(
        default=(),
        description="The first that is about a request narrows it to the endpoints of a label.",
        examples=[[{"when": {"min_prompt_tokens": 8000}, "to": "long"}]],
    )
    canary: CanaryConfig | None = Field(
        default=None, description="A share of the sessions that goes to the endpoints of a label, always the same ones."
    )


class SloConfig(_Block):
    """How quick answers should be; routing by latency keeps to it where it can."""

    ttft_s: Duration = Field(default=2.0, validation_alias="ttft", description="To the first token.")
    itl_s: Duration = Field(default=0.1, validation_alias="itl", description="Between two tokens after it.")


class EmbeddingsBatchConfig(_Block):
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


class CaptureConfig(_Block):
    """What people say and models answer, in the access log: personal data, and off."""

    prompts: bool = Field(default=False, description="The beginning of each request's body, as `prompt`.")
    answers: bool = Field(default=False, description="The beginning of each answer's text, as `answer`.")
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1000, description="Most characters of either; the rest is left out."
    )


class PoolConfig(_Block):
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


class StreamConfig(_Block):
    """How streams are relayed."""

    keepalive_s: Duration = Field(
        default=10.0, validation_alias="keepalive", description="Silence after which a client gets an SSE comment."
    )
    buffer_bytes: Size = Field(
        default=262_144,
        validation_alias="buffer",
        description="Read from the engine and not yet taken by the client, per stream; then reading pauses.",
    )


class LimitsHttpConfig(_Block):
    """The largest request that is read, and the slowest."""

    body_bytes: Size = Field(default=67_108_864, validation_alias="body", description="Larger bodies get 413.")
    header_bytes: Size = Field(default=65_536, validation_alias="header", description="Larger request heads get 431.")
    read_s: Duration = Field(
        default=60.0,
        validation_alias="read",
        description="How long a client may take to send a head, and then each MiB of the body; slower ones get 408.",
    )


class LogConfig(_Block):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is written."
    )


class MetricsConfig(_Block):
    """What /metrics tells."""

    max_series: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=5000, description="Most label sets over all families; further ones are counted under other."
    )
    genai_names: bool = Field(
        default=False, description="Tell some numbers a second time, by the names of the GenAI conventions."
    )
    dir: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Folder for the numbers of several workers; a temporary one if not given.",
        examples=["/run/weir"],
    )


class CorsConfig(_Block):
    """Which web pages may call Weir."""

    allow_origins: tuple[Annotated[str, AfterValidator(values.origin)], ...] = Field(
        default=(),
        description="Origins that browsers may call from; * for all.",
        examples=[["https://chat.example.com"]],
    )


class AdminConfig(_Block):
    """The operator's API, /weir/* and /metrics."""

    listen: Address | None = Field(
        default=None,
        description="HOST:PORT of a listener of its own; the main one if not given.",
        examples=["127.0.0.1:9090"],
    )
    token: Secret | None = Field(
        default=None,
        description="Bearer token that /weir/* asks for; without one it answers loopback only.",
        examples=["${WEIR_ADMIN_TOKEN}"],
    )

    def listens_at(self, address: str) -> bool:
        """Whether its own listener would take connections to that ``HOST:PORT``."""
        return self.listen is not None and values.same_address(
            values.split_address(self.listen), values.split_address(address)
        )


class RecorderConfig(_Block):
    """The flight recorder: what ``weir explain`` and /weir/requests tell from. It holds no content."""

    path: str = Field(
        default="auto",
        min_length=1,
        description="A SQLite file; `auto` for one in the user's state directory; `memory` for none.",
        examples=["/var/lib/weir/flights.sqlite"],
    )
    max_rows: Count = Field(default=500_000, description="Requests in the file; the oldest go first.")
    max_bytes: Size = Field(
        default=512 * 2**20,
        validation_alias="max_size",
        description="Size of the file, about; the oldest requests go first.",
    )


class KeepSlowerConfig(_Block):
    """How slow a request is whose trace is kept."""

    ttft_s: DurationOrZero = Field(
        default=2.0, validation_alias="ttft", description="Longest usual wait for the first token; 0 for any."
    )
    duration_s: DurationOrZero = Field(
        default=0.0, validation_alias="duration", description="Longest usual request; 0 for any."
    )


class KeepRuleConfig(_Block):
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


class TelemetryConfig(_Block):
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


class ShutdownConfig(_Block):
    """What happens on SIGTERM, SIGINT or SIGHUP."""

    drain_s: DurationOrZero = Field(
        default=30.0, validation_alias="drain", description="How long running requests may finish; then they are ended."
    )


class _Listening(_Block):
    listen: Address = Field(
        default=DEFAULT_LISTEN,
        description="HOST:PORT that clients connect to; IPv6 in brackets; port 0 for any free one.",
        examples=["0.0.0.0:8080", "[::1]:8080"],
    )

    @property
    def listen_host(self) -> str:
        """Host part of ``listen``, an IPv6 one without its brackets."""
        return values.split_address(self.listen)[0]

    @property
    def listen_port(self) -> int:
        return values.split_address(self.listen)[1]


class OperatorConfig(_Listening):
    """The part of the file that says where a gateway's /weir/* is, and what lets in."""

    admin: AdminConfig = AdminConfig()


class RecordingConfig(_Listening):
    """The part of the file that says where the flight recorder writes."""

    recorder: RecorderConfig = RecorderConfig()


class Config(_Listening):
    """The whole file."""

    pools: dict[Name, PoolConfig] = Field(
        min_length=1,
        description="By the model name that clients ask for.",
        examples=[{"llama-3-8b": {"endpoints": ["http://10.0.0.1:8000"]}}],
    )
    stream: StreamConfig = StreamConfig()
    limits_http: LimitsHttpConfig = LimitsHttpConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    cors: CorsConfig = CorsConfig()
    admin: AdminConfig = AdminConfig()
    recorder: RecorderConfig = RecorderConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @field_validator("telemetry")
    @classmethod
    def _keep_rules_name_what_exists(cls, telemetry: TelemetryConfig, info: ValidationInfo) -> TelemetryConfig:
        pools: dict[str, PoolConfig] = info.data.get("pools", {})
        kept = [KeepNames(rule.pool or "", rule.model or "") for rule in telemetry.keep]
        _refuse(missing_in_keep(kept, [_references(name, pool) for name, pool in pools.items()]))
        return telemetry

    @field_validator("admin")
    @classmethod
    def _listens_elsewhere(cls, admin: AdminConfig, info: ValidationInfo) -> AdminConfig:
        listen: str | None = info.data.get("listen")
        if listen is not None and admin.listens_at(listen):
            raise ValueError(
                f"listens where clients connect (listen is {listen}): give admin.listen another port, or remove it"
            )
        return admin

    @field_validator("pools")
    @classmethod
    def _named_and_unique(cls, pools: dict[str, PoolConfig]) -> dict[str, PoolConfig]:
        _refuse(
            conflicts(
                PoolNames(name, pool.aliases, tuple(endpoint.id for endpoint in pool.endpoints))
                for name, pool in pools.items()
            )
        )
        _refuse(missing_in_routing(_references(name, pool) for name, pool in pools.items()))
        return {name: _named(name, pool) for name, pool in pools.items()}

    @property
    def hash(self) -> str:
        """Twelve digits that change with whatever is configured, credentials and headers aside."""
        told = self.model_dump_json(exclude={"pools": {"__all__": {"endpoints": {"__all__": {"headers"}}}}})
        return hashlib.sha256(told.encode()).hexdigest()[:12]


def _refuse(found: Iterable[Conflict]) -> None:
    messages = [conflict.message for conflict in found]
    if messages:
        raise PydanticCustomError(CONFLICT, "{text}", {"text": "; ".join(messages)})


def _references(name: str, pool: PoolConfig) -> PoolReferences:
    nothing = RuleConditionsConfig()
    return PoolReferences(
        name,
        pool.aliases,
        tuple(endpoint.label or "" for endpoint in pool.endpoints),
        tuple(RuleNames(rule.to, rule.when.model or "", rule.when == nothing) for rule in pool.routing.rules),
        "" if pool.routing.canary is None else pool.routing.canary.label,
    )


def _named(name: str, pool: PoolConfig) -> PoolConfig:
    endpoints = tuple(
        endpoint if endpoint.id else endpoint.model_copy(update={"id": derived_endpoint_id(name, index)})
        for index, endpoint in enumerate(pool.endpoints)
    )
    return pool.model_copy(update={"name": name, "endpoints": endpoints})
