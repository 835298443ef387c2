"""How long an attempt may take, and how many there are."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field

from gateway.config.fields import Block, Duration


class TimeoutsConfig(Block):
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


class RetriesConfig(Block):
    """How often a request is tried before its first output."""

    attempts: Annotated[int, Field(ge=1, le=10)] = Field(default=3, description="Attempts, counting the first.")
    budget_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2,
        validation_alias="budget",
        description="Further attempts as a share of the pool's requests over 10 s; 3 a second are always allowed.",
    )


class HedgeConfig(Block):
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
