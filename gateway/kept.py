"""What is kept of a stream while it runs, so that another endpoint can go on with it."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.continuation import Rest
from adapters.joined_stream import JoinedStream
from adapters.said import Said
from adapters.types import GatewayRequest


@dataclass(slots=True)
class Kept:
    """What it takes to go on with a stream.

    Attributes:
        request: The client's, with its bytes and without the parsed body.
        said: What the client has been given.
        token_a_chunk: Whether each piece of that was a token.
        rest: What the attempt that goes on asks for; None while the first one runs.
        joined: Joins its answer to what was said.
        live: Something of its answer went to the client.
    """

    request: GatewayRequest
    said: Said
    token_a_chunk: bool
    rest: Rest | None = None
    joined: JoinedStream | None = None
    live: bool = False
