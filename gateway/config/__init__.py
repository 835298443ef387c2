"""The configuration: ``models`` is the whole of it, ``file`` reads one with all its mistakes."""

from __future__ import annotations

from .attempts import HedgeConfig, RetriesConfig, TimeoutsConfig
from .clients import CorsConfig, LimitsHttpConfig, StreamConfig
from .endpoint import EndpointConfig, Engine
from .health import HealthConfig
from .models import Config, OperatorConfig, RecordingConfig
from .operators import AdminConfig, LogConfig, MetricsConfig, RecorderConfig, ShutdownConfig
from .pool import CaptureConfig, EmbeddingsBatchConfig, PoolConfig, SloConfig
from .routing import CanaryConfig, RoutingConfig, RoutingRuleConfig, RuleConditionsConfig
from .telemetry import KeepRuleConfig, KeepSlowerConfig, TelemetryConfig

__all__ = [
    "AdminConfig",
    "CanaryConfig",
    "CaptureConfig",
    "Config",
    "CorsConfig",
    "EmbeddingsBatchConfig",
    "EndpointConfig",
    "Engine",
    "HealthConfig",
    "HedgeConfig",
    "KeepRuleConfig",
    "KeepSlowerConfig",
    "LimitsHttpConfig",
    "LogConfig",
    "MetricsConfig",
    "OperatorConfig",
    "PoolConfig",
    "RecorderConfig",
    "RecordingConfig",
    "RetriesConfig",
    "RoutingConfig",
    "RoutingRuleConfig",
    "RuleConditionsConfig",
    "ShutdownConfig",
    "SloConfig",
    "StreamConfig",
    "TelemetryConfig",
    "TimeoutsConfig",
]
