"""What a dialect is to the server: plain values and functions of them, no sockets and no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

from gateway.simulator.bodies import CallRejected
from gateway.simulator.calls import Embedding, Generation, Rules
from gateway.simulator.metrics_text import EngineCounts
from gateway.simulator.output import Output
from gateway.simulator.settings import Settings
from gateway.simulator.transcript import Fields

Headers = tuple[tuple[str, str], ...]
StreamStart = Literal["at_once", "with_slot", "with_first_token"]


class Request(NamedTuple):
    """One HTTP request.

    Attributes:
        query: As it stands behind the question mark.
        content_type: Of the body, or "".
        client_id: What the client wants its request to be called, or "".
        random_id: 32 hexadecimal digits.
        received_unix_s: Whole seconds.
    """

    path: str
    query: str
    content_type: str
    body: bytes
    client_id: str
    random_id: str
    received_unix_s: int


class Reply(NamedTuple):
    """One whole answer; a body that is no bytes goes out as compact JSON."""

    status: int
    body: Fields | list[Fields] | bytes
    content_type: str = "application/json"
    headers: Headers = ()


class State(NamedTuple):
    """The engine at the time of a request.

    Attributes:
        running: Requests that hold a slot.
        waiting: Requests in the queue.
        cached_tokens: Tokens that the running ones hold in the cache.
        kv_tokens: Room in the cache.
        promised_tokens: What the running ones will hold at their ends.
    """

    settings: Settings
    started_unix_s: int
    running: int
    waiting: int
    cached_tokens: int
    kv_tokens: int
    promised_tokens: int
    counts: EngineCounts

    @property
    def model(self) -> str:
        """The default model."""
        return self.settings.models[0]

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the cache in use, 0 to 1."""
        return self.cached_tokens / self.kv_tokens


class Wire(Protocol):
    """Writes the answer to one call."""

    media_type: ClassVar[str]
    """The content type of the stream."""

    def frames(self, output: Output) -> list[bytes]:
        """Returns what a stream says of one output."""
        ...

    def end(self) -> list[bytes]:
        """Returns what a stream says after the last output."""
        ...

    def add(self, output: Output) -> None:
        """Keeps one output for ``reply``."""
        ...

    def reply(self) -> Reply:
        """Returns the answer to a call without a stream."""
        ...


class Asked(NamedTuple):
    """A call that the engine understood."""

    call: Generation
    wire: Wire


class Vectors(NamedTuple):
    """A call for embeddings, and its answer."""

    call: Embedding
    reply: Reply


@dataclass(frozen=True, slots=True)
class Generates:
    """POST: runs answers in the batch. ``read`` raises ``CallRejected``; a reply of its own ends the matter."""

    read: Callable[[Request, State], Asked | Reply]


@dataclass(frozen=True, slots=True)
class Embeds:
    """POST: runs prompts in the batch. ``read`` raises ``CallRejected``."""

    read: Callable[[Request, State], Vectors]


@dataclass(frozen=True, slots=True)
class Page:
    """Answered at once. ``answer`` raises ``CallRejected``."""

    methods: tuple[str, ...]
    answer: Callable[[Request, State], Reply]


Route = Generates | Embeds | Page


class Dialect(Protocol):
    """One engine's way to talk HTTP."""

    @property
    def rules(self) -> Rules:
        """What it takes."""
        ...

    @property
    def headers(self) -> Headers:
        """Of every answer."""
        ...

    @property
    def stream_headers(self) -> Headers:
        """Of every stream, besides."""
        ...

    @property
    def stream_start(self) -> StreamStart:
        """When the head of a stream goes out."""
        ...

    @property
    def closes_streams(self) -> bool:
        """Whether the connection is closed after a stream."""
        ...

    @property
    def has_queue_limit(self) -> bool:
        """Whether the engine can be told to refuse what would wait."""
        ...

    @property
    def edges_s(self) -> tuple[float, ...]:
        """The buckets of its histograms, seconds."""
        ...

    def routes(self) -> Mapping[str, Route]:
        """Returns what it serves, by path, or by ``POST path`` where the path serves other methods as well."""
        ...

    def missing(self, method: str, path: str, *, known: bool) -> Reply:
        """Returns the answer to a path that it doesn't serve, or (``known``) not with that method."""
        ...

    def refusal(self, error: CallRejected, path: str) -> Reply:
        """Returns the answer to a call that is not carried out."""
        ...

    def stream_refusal(self, error: CallRejected, path: str) -> Reply | None:
        """Returns what is said inside a 200, as a stream, or None where the status says it."""
        ...
