"""What operators see and may do, the process itself included."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config import values
from gateway.config.fields import Address, Block, Count, DurationOrZero, Secret, Size


class LogConfig(Block):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is written."
    )


class MetricsConfig(Block):
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


class AdminConfig(Block):
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


class RecorderConfig(Block):
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


class ShutdownConfig(Block):
    """What happens on SIGTERM, SIGINT or SIGHUP."""

    drain_s: DurationOrZero = Field(
        default=30.0, validation_alias="drain", description="How long running requests may finish; then they are ended."
    )
