"""One request on its way, from what the client sent to what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.types import GatewayRequest
from policies.types import NO_QUERY, RouteQuery

from .client_link import ClientLink
from .flight import FlightRecord
from .keepalive import KeepAlive
from .kept import Kept
from .pool import Pool
from .prompts import NO_PROMPT, Prompt
from .route_signals import SILENT, RouteSignals


@dataclass
class Call:
    """One request on its way.

    Attributes:
        headers: What goes to every endpoint: content type, request id. The trace context is each attempt's own.
        trailers: Whether the client takes HTTP trailers; from the commit on, whether they are announced.
        committed: Bytes of an answer have gone to the client.
        opaque: The body is passed on undecoded, so that a broken one can only be cut off.
        follows: The attempt is joined with other requests', one of which tells the fleet of its failure.
        prompt: What there is to know of its prompt; nothing of what is none.
        query: What routing is asked: of the first attempt, for the later ones less what was tried.
        signals: What it says to the pool's routing beside its prompt.
        busy_s: The shortest wait that an engine asked for; None if none did.
        kept: What it takes to go on with its stream elsewhere; None where nobody could.
        not_kept: Why nobody could, if that is the request's doing.
    """

    request: GatewayRequest
    pool: Pool
    record: FlightRecord
    link: ClientLink
    headers: tuple[tuple[bytes, bytes], ...]
    trailers: bool = False
    signals: RouteSignals = SILENT
    # What comes on the way is the class's until it does: few requests have much of it
    keepalive: KeepAlive | None = field(default=None, init=False)
    committed: bool = field(default=False, init=False)
    opaque: bool = field(default=False, init=False)
    follows: bool = field(default=False, init=False)
    prompt: Prompt = field(default=NO_PROMPT, init=False)
    query: RouteQuery = field(default=NO_QUERY, init=False)
    busy_s: float | None = field(default=None, init=False)
    kept: Kept | None = field(default=None, init=False)
    not_kept: str = field(default="", init=False)
