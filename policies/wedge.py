"""Whether an engine hangs although it answers its probes: requests wait there, and nothing at all comes out.

One request that waits is no evidence, nor is a slow endpoint: its other streams go on, and its own first outputs say
what is usual there. Nothing is concluded of an endpoint without a measure to go by.
"""

from __future__ import annotations

from typing import NamedTuple

SEVERAL = 2
"""So many requests have to wait; one that is tried on its own is enough."""
FLOOR_S = 2.0
"""No silence shorter than this is a sign of anything: graphs are captured, caches are moved."""
COLD_FLOOR_S = 10.0
"""The same where nothing came out for long or ever: a model may be loaded for the first request."""
COLD_S = 60.0
_FACTOR = 4.0
_PEER_FACTOR = 10.0  # machines are unlike
_FADE = 0.98  # half is left after 34 first outputs


class Slowest(NamedTuple):
    """The slowest of the recent first outputs of an endpoint; older ones fade.

    Attributes:
        wait_s: From the attempt sent to its first output.
        prompt_tokens: Of the longest prompt among them, estimated; what no cache was believed to hold.
    """

    wait_s: float
    prompt_tokens: float

    @classmethod
    def after(cls, known: Slowest | None, wait_s: float, prompt_tokens: int) -> Slowest:
        """Returns what is known after one more first output."""
        if known is None:
            return cls(wait_s, float(prompt_tokens))
        return cls(max(wait_s, known.wait_s * _FADE), max(prompt_tokens, known.prompt_tokens * _FADE))


class Waiting(NamedTuple):
    """Streams asked for at one endpoint that have no output yet. Times are monotonic.

    Attributes:
        sent_s: When each was sent, the oldest first.
        prompt_tokens: Of the longest prompt among them, estimated.
        output_s: When any output came from this endpoint last; None if none ever did.
    """

    sent_s: tuple[float, ...]
    prompt_tokens: int
    output_s: float | None


def is_wedged(
    waiting: Waiting,
    own: Slowest | None,
    peers: Slowest | None,
    now_s: float,
    *,
    needed: int = SEVERAL,
    loads_since_s: float | None = None,
) -> bool:
    """Returns whether it is certain that the endpoint hangs.

    Args:
        waiting: What waits there.
        own: The slowest first outputs of the endpoint itself.
        peers: Those of the slowest other endpoint of its pool.
        now_s: Monotonic.
        needed: So many have to have waited for too long.
        loads_since_s: Of an engine that loads a model when it is asked for it: when it last was known not to have it,
            0 if it never was; None of any other engine. Of a load, which may take minutes, nothing is concluded.
    """
    if len(waiting.sent_s) < needed:
        return False
    usual, factor = (own, _FACTOR) if own is not None else (peers, _PEER_FACTOR)
    if usual is None:
        return False
    sent_s = waiting.sent_s[needed - 1]
    heard_s = waiting.output_s
    cold = own is None or heard_s is None or waiting.sent_s[0] - heard_s > COLD_S
    if loads_since_s is not None and (cold or heard_s is None or heard_s <= loads_since_s):
        return False
    longer = max(waiting.prompt_tokens / max(usual.prompt_tokens, 1.0), 1.0)
    limit_s = max(COLD_FLOOR_S if cold else FLOOR_S, factor * usual.wait_s * longer)
    return now_s - (sent_s if heard_s is None else max(sent_s, heard_s)) > limit_s
