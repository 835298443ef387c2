"""The whole configuration. What a key means, its default and its bounds are in the file of its block, beside this one.

The keys of the file are aliases; the attributes carry units. Reading a file with all its mistakes is
``config.file``'s; code and tests may also build these models directly, by attribute name and in plain numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from gateway.config import values
from gateway.config.clients import CorsConfig, LimitsHttpConfig, StreamConfig
from gateway.config.fields import Address, Block, Name
from gateway.config.names import Conflict, PoolNames, conflicts, derived_endpoint_id
from gateway.config.operators import AdminConfig, LogConfig, MetricsConfig, RecorderConfig, ShutdownConfig
from gateway.config.pool import PoolConfig
from gateway.config.references import KeepNames, PoolReferences, RuleNames, missing_in_keep, missing_in_routing
from gateway.config.routing import RuleConditionsConfig
from gateway.config.telemetry import TelemetryConfig

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
CONFLICT: Final = "conflict"  # the type of the validation error for a name used twice, or for what is not there


class _Listening(Block):
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
