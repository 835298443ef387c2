"""One part of a request's time."""

from __future__ import annotations

from typing import Literal, NamedTuple

PhaseName = Literal[
    "read",
    "queue",
    "route",
    "retries",
    "hedge_wait",
    "connect",
    "engine_wait",
    "engine_queue",
    "engine_load",
    "prefill",
    "engine_other",
    "decode",
    "resume",
    "client_write_wait",
    "gateway",
]
Source = Literal["measured", "inferred"]


class Phase(NamedTuple):
    """A part of the time from a request's head to the last byte of its answer. Parts do not overlap.

    | name | what |
    | --- | --- |
    | read | the client's body, from its head on |
    | queue | Weir's own queue |
    | route | the choice of an endpoint |
    | retries | attempts that failed before the last one began, and the waits between them |
    | hedge_wait | the attempt beside which the one that answered was begun, until then |
    | connect | a new connection to the engine |
    | engine_wait | until the engine's first output, where nothing tells its queue from its prefill |
    | engine_queue | in the engine's queue |
    | engine_load | the engine loads the model |
    | prefill | the engine reads the prompt |
    | engine_other | before the first output, and not in the engine's own times: its HTTP server, the network |
    | decode | from the first output to the end; of a resumed answer, of all its attempts |
    | resume | from where one engine broke an answer off until another went on with it, or the last had tried to |
    | client_write_wait | a slow client takes nothing |
    | gateway | everything else: Weir's own work |

    Attributes:
        source: ``measured`` by Weir or the engine, or ``inferred`` from the engine's load and its usual pace.
    """

    name: PhaseName
    duration_s: float
    source: Source = "measured"
