"""What one simulated engine is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.simulator.batching import Pace


@dataclass(frozen=True, slots=True)
class Settings:
    """What one engine is.

    Attributes:
        dialect: Whose wire format it speaks: a key of ``dialects.DIALECTS``.
        models: The names it answers to; the first is the default and the label of its metrics.
        context_tokens: Most tokens of a prompt and its answer together.
        max_queue: Most requests that wait for a slot; one more is refused. None for no limit.
        seed: Of the jitter.
    """

    dialect: str = "vllm"
    models: tuple[str, ...] = ("simulated",)
    pace: Pace = field(default_factory=Pace)
    context_tokens: int = 8192
    max_queue: int | None = None
    seed: int = 0
