"""When an endpoint gets no requests."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from gateway.config.fields import Block, Count, Duration
from gateway.config.units import format_duration


class HealthConfig(Block):
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
