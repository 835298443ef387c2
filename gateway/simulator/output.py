"""What comes out of the batch, one token at a time."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.simulator.text import FinishReason, Piece


@dataclass(frozen=True, slots=True)
class Output:
    """One token of one choice, or (``piece`` None) the end of a choice that was aborted.

    Attributes:
        choice: Its number within the call.
        finish_reason: Set on the last one.
        queued_s: How long the choice waited for a slot, seconds.
        at_s: When the token came, seconds after the request arrived.
    """

    choice: int
    piece: Piece | None
    finish_reason: FinishReason | None = None
    queued_s: float = 0.0
    at_s: float = 0.0
