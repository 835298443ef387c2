"""Traces: built from closed flight records, and given to the OpenTelemetry SDK's batch processor."""

from __future__ import annotations

from .tracing import Tracing

__all__ = ["Tracing"]
