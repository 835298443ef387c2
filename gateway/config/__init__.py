"""The configuration: ``models`` says what there is, ``file`` reads it with all its mistakes."""

from __future__ import annotations

from .models import (
    AdminConfig,
    CaptureConfig,
    Config,
    CorsConfig,
    EndpointConfig,
    Engine,
    HealthConfig,
    KeepRuleConfig,
    KeepSlowerConfig,
    LimitsHttpConfig,
    LogConfig,
    MetricsConfig,
    PoolConfig,
    RecorderConfig,
    RetriesConfig,
    RoutingConfig,
    ShutdownConfig,
    StreamConfig,
    TelemetryConfig,
    TimeoutsConfig,
)

__all__ = [
    "AdminConfig",
    "CaptureConfig",
    "Config",
    "CorsConfig",
    "EndpointConfig",
    "Engine",
    "HealthConfig",
    "KeepRuleConfig",
    "KeepSlowerConfig",
    "LimitsHttpConfig",
    "LogConfig",
    "MetricsConfig",
    "PoolConfig",
    "RecorderConfig",
    "RetriesConfig",
    "RoutingConfig",
    "ShutdownConfig",
    "StreamConfig",
    "TelemetryConfig",
    "TimeoutsConfig",
]
