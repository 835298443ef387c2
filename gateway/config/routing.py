"""Which endpoint a request goes to."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.config.fields import Block, Count, HeaderValue, Label, Name, SeenHeaderName, Size


class RuleConditionsConfig(Block):
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


class RoutingRuleConfig(Block):
    """Requests of one kind go to the endpoints of one label."""

    when: RuleConditionsConfig = RuleConditionsConfig()
    to: Label = Field(description="The endpoints' label.", examples=["long"])


class CanaryConfig(Block):
    """A share of the sessions goes to the endpoints of one label."""

    label: Label = Field(description="The endpoints' label.", examples=["canary"])
    share: Annotated[float, Field(ge=0, le=1)] = Field(description="Their share of the sessions.", examples=[0.05])


class RoutingConfig(Block):
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
