"""What adapters are made of: the request they encode, the pieces they give back, the errors they raise.

An adapter is sans-IO. It turns a client's call into one HTTP request for its engine, the engine's bytes into
whole SSE frames for the client, and the engine's refusals into one error value. It opens no socket, reads no
clock and keeps nothing between requests. Values made for every request are named tuples: frozen, and made in a third of
the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from .answer_facts import AnswerFacts as AnswerFacts
from .answer_facts import answer_facts
from .failures import AdapterError as AdapterError
from .failures import EngineFailed as EngineFailed
from .failures import MalformedStream as MalformedStream
from .failures import TruncatedStream as TruncatedStream
from .failures import Unsupported as Unsupported
from .json_values import Json, as_object, objects

# No tokeniser on the hot path: what stands in for one where an engine reports no counts.
BYTES_PER_TOKEN = 4

EngineName = Literal["openai", "vllm", "sglang", "llamacpp", "ollama", "tgi", "lightllm", "lmdeploy", "trtllm"]
Operation = Literal["chat", "text_completion", "embeddings", "other"]


class Usage(NamedTuple):
    """Token counts of one answer: the engine's own or, if ``estimated``, what can be told without it."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False


class EngineTimings(NamedTuple):
    """Where an engine says that the time of one answer went; None where it does not say.

    Attributes:
        queue_s: Waiting for its turn; an upper bound where it is what the engine's other durations leave over.
        load_s: Loading the model; near 0 if it was loaded.
        prefill_s: Reading the prompt.
        decode_s: Making the answer's tokens after the first.
        inference_s: Prefill and decode together, from an engine that does not tell them apart.
    """

    queue_s: float | None = None
    load_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    inference_s: float | None = None


class GatewayRequest(NamedTuple):
    """One call of a client, read and checked.

    Attributes:
        request_id: The id the client sees in ``x-request-id``.
        operation: What is asked for; bounded, so it may be a metric label.
        path: Path below the engine's base URL, for example ``/v1/chat/completions``; may hold a query.
        method: HTTP method.
        model: The name the client asked for, and will read back.
        stream: Whether the client wants a stream.
        raw: The body as the client sent it, byte for byte.
        body: The same, parsed. In a body above ``SKELETON_BYTES`` long strings are cut to "" (see ``bodies``).
        created_unix_s: Wall clock of arrival.
    """

    request_id: str
    operation: Operation
    path: str
    method: str
    model: str
    stream: bool
    raw: bytes
    body: Mapping[str, Any]
    created_unix_s: int

    @property
    def wants_usage(self) -> bool:
        """Whether the client asked for a usage chunk at the end of its stream."""
        options = as_object(self.body.get("stream_options"))
        return options is not None and bool(options.get("include_usage"))

    def options_for_usage(self) -> dict[str, Any]:
        """Returns the client's ``stream_options``, made to ask for usage."""
        return {**(as_object(self.body.get("stream_options")) or {}), "include_usage": True}

    @property
    def prompt_estimate_tokens(self) -> int:
        """Stands in for the prompt's tokens where an engine does not count them."""
        return len(self.raw) // BYTES_PER_TOKEN

    def without_body(self) -> GatewayRequest:
        """Returns the same without the prompt, which need not be kept for as long as the answer runs."""
        return GatewayRequest(
            self.request_id,
            self.operation,
            self.path,
            self.method,
            self.model,
            self.stream,
            b"",
            {},
            self.created_unix_s,
        )


class UpstreamRequest(NamedTuple):
    """What goes to the engine.

    Attributes:
        path: Below the endpoint's base URL.
        body: Bytes to send.
        stream: Whether the engine was asked for a stream; may be so although the client was not.
        dropped: Names of request fields this engine cannot take and that were left out.
    """

    path: str
    body: bytes
    stream: bool
    dropped: tuple[str, ...] = ()


class PlainChunk(NamedTuple):
    """What a read looks like that is one chunk of text and needs no decoding: this, but for the text.

    Such a read may go to the client as it came, and counts as one output; whoever lets it pass adds that to the
    decoder's ``outputs``.

    Attributes:
        prefix: All before the text.
        text_at: Its length.
        suffix: All after the text, from its closing quote on.
        suffix_bytes: Its length.
    """

    prefix: bytes
    text_at: int
    suffix: bytes
    suffix_bytes: int


class StreamDecoder(Protocol):
    """One engine stream: bytes in, whole SSE frames for the client out, cut wherever the network cuts.

    Attributes:
        outputs: Chunks with output so far: content, reasoning, tool call or refusal.
        usage: The engine's token counts once they are known.
        timings: Where the engine says that the time went, once it has; most never do.
        plain: What a read looks like that may pass undecoded; None while there is no such read.
        finished: The engine said that the answer is whole. Nothing more will come out of ``feed``.
        error: What is wrong with the stream: the engine's own error, if a frame carried one, or a frame that is none
            of this dialect. Nothing more will come out of ``feed``.
    """

    @property
    def outputs(self) -> int: ...

    @outputs.setter
    def outputs(self, outputs: int) -> None: ...

    @property
    def usage(self) -> Usage | None: ...

    @property
    def timings(self) -> EngineTimings | None: ...

    @property
    def plain(self) -> PlainChunk | None: ...

    @property
    def finished(self) -> bool: ...

    @property
    def error(self) -> AdapterError | None: ...

    def feed(self, data: bytes) -> bytes:
        """Returns the whole frames that ``data`` completes, ready for the client; b"" when it completes none.

        Never raises: what comes before a bad frame is good, and ``error`` tells of the bad one.
        """
        ...

    def tokens(self) -> Usage:
        """Returns the engine's token counts, or an estimate while there are none: a chunk is taken for a token."""
        ...

    def facts(self) -> AnswerFacts | None:
        """Returns what the answer has said of itself so far, for a trace; None for nothing."""
        ...

    def close(self) -> bytes:
        """Says that the body ended. Returns the frames that were held back until now (usage).

        Raises:
            AdapterError: ``error``, or TruncatedStream: the answer is not whole.
        """
        ...


class AnswerHead(Protocol):
    """What there is to read of the engine's answer besides its body."""

    @property
    def content_type(self) -> str:
        """In lower case; "" if there is none."""
        ...

    def get(self, name: bytes) -> bytes | None:
        """Returns the first header of that (lower case) name, or None."""
        ...


class Answer(NamedTuple):
    """A whole answer, ready for the client.

    Attributes:
        parsed: The same as an object, if it was made or read as one.
        model: The engine's own name of the model, whatever it is.
    """

    body: bytes
    usage: Usage | None
    outputs: int
    timings: EngineTimings | None = None
    parsed: Json | None = None
    model: Any = None

    def facts(self) -> AnswerFacts | None:
        """Returns what the answer says of itself, for a trace; None for nothing."""
        parsed = self.parsed or {}
        reasons = (choice.get("finish_reason") for choice in objects(parsed.get("choices")))
        return answer_facts(parsed.get("id"), self.model, reasons)


class AnswerReader(Protocol):
    """Puts a whole (not streamed) answer together from the engine's body, whichever way the engine sent it."""

    def feed(self, data: bytes) -> None:
        """Takes one read.

        Raises:
            MalformedStream: As for a stream.
        """
        ...

    @property
    def outputs(self) -> int:
        """Chunks with output so far; 0 until the end if the engine does not stream."""
        ...

    def close(self) -> Answer:
        """Returns the answer.

        Raises:
            AdapterError: The engine reported an error, broke off, or sent what is no answer.
        """
        ...


class Adapter(Protocol):
    """One engine's dialect."""

    @property
    def name(self) -> str:
        """The engine's name in configuration, metrics and traces."""
        ...

    @property
    def idle_s(self) -> float:
        """How long an idle connection may wait and still be used again."""
        ...

    @property
    def health_path(self) -> str:
        """A cheap path that answers 200 while the engine can serve."""
        ...

    @property
    def stream_type(self) -> str:
        """The content type of its streams, as far as it tells them from other answers: ``event-stream``, ``ndjson``."""
        ...

    def encode(self, request: GatewayRequest, model: str | None) -> UpstreamRequest:
        """Returns the request for the engine; ``model`` replaces the client's name for it, unless None.

        Raises:
            EngineFailed: The engine cannot do what the request asks for (400, names the field).
        """
        ...

    def stream_decoder(self, request: GatewayRequest) -> StreamDecoder: ...

    def answer_reader(self, request: GatewayRequest, head: AnswerHead, *, streamed: bool) -> AnswerReader:
        """Returns the reader of a whole answer; ``streamed`` says that the engine was asked for a stream."""
        ...

    def read_error(self, status: int, body: bytes) -> EngineFailed:
        """Reads an error answer of any shape; never raises."""
        ...
