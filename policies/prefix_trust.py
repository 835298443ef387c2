"""How much of what an endpoint was sent its cache turns out to hold: one pure step an answer."""

from __future__ import annotations

from typing import NamedTuple

RECOVERY_S = 1800.0
"""In so long trust comes back whole, from nothing, without any answer."""
_GAIN = 0.2


class Trust(NamedTuple):
    """Of one endpoint.

    Attributes:
        ratio: Part of the tokens it was sent before that its cache held, smoothed; 0 to 1.
        at_s: When that was learnt, monotonic.
    """

    ratio: float = 1.0
    at_s: float = 0.0

    def now(self, now_s: float) -> float:
        """Returns the ratio, grown with its age: an endpoint that is credited nothing is asked again some day."""
        return min(self.ratio + max(now_s - self.at_s, 0.0) / RECOVERY_S, 1.0)

    def learnt(self, sent_tokens: int, cached_tokens: int, now_s: float) -> Trust:
        """Returns it after an answer.

        Args:
            sent_tokens: Of its prompt, those that the endpoint had been sent before; more than 0.
            cached_tokens: Those that its cache held, as the engine said.
            now_s: Monotonic.
        """
        ratio = self.now(now_s)
        return Trust(ratio + _GAIN * (min(cached_tokens / sent_tokens, 1.0) - ratio), now_s)


FULL = Trust()
