"""What clients may do, and how they are served."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.config import values
from gateway.config.fields import Block, Duration, Size


class StreamConfig(Block):
    """How streams are relayed."""

    keepalive_s: Duration = Field(
        default=10.0, validation_alias="keepalive", description="Silence after which a client gets an SSE comment."
    )
    buffer_bytes: Size = Field(
        default=262_144,
        validation_alias="buffer",
        description="Read from the engine and not yet taken by the client, per stream; then reading pauses.",
    )


class LimitsHttpConfig(Block):
    """The largest request that is read, and the slowest."""

    body_bytes: Size = Field(default=67_108_864, validation_alias="body", description="Larger bodies get 413.")
    header_bytes: Size = Field(default=65_536, validation_alias="header", description="Larger request heads get 431.")
    read_s: Duration = Field(
        default=60.0,
        validation_alias="read",
        description="How long a client may take to send a head, and then each MiB of the body; slower ones get 408.",
    )


class CorsConfig(Block):
    """Which web pages may call Weir."""

    allow_origins: tuple[Annotated[str, AfterValidator(values.origin)], ...] = Field(
        default=(),
        description="Origins that browsers may call from; * for all.",
        examples=[["https://chat.example.com"]],
    )
