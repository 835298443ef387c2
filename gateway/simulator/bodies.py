"""The JSON bodies of the calls that the engine reads, and the refusal of those that are none."""

from __future__ import annotations

from collections.abc import Sized
from typing import Literal, TypeVar

import orjson
from pydantic import BaseModel, Field, JsonValue, ValidationError

Ids = list[int]


RefusalKind = Literal["media_type", "json", "shape", "value", "too_long", "unknown_model", "overload"]


class CallRejected(Exception):
    """A call that is not carried out. The message is vLLM's; status and body are each dialect's own.

    Attributes:
        param: The field at fault, or None.
        kind: ``json`` is a body that is no JSON, ``shape`` a field that is missing or of another type, ``value`` one
            that is out of range; ``overload`` is no mistake of the client's.
        streaming: The call asked for a stream: some engines say no inside a 200 then.
        sizes: Of a prompt that is too long: its tokens and the most there may be.
    """

    def __init__(
        self,
        message: str,
        param: str | None = None,
        kind: RefusalKind = "value",
        *,
        streaming: bool = False,
        sizes: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.kind: RefusalKind = kind
        self.streaming = streaming
        self.sizes = sizes


class ModelBody(BaseModel):
    """What every call has. Unknown fields are ignored, as vLLM does; so are explicit nulls of optional ones."""

    model: str | None = None


class StreamOptions(BaseModel):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchema(BaseModel):
    body: dict[str, JsonValue] = Field(alias="schema")


class ResponseFormat(BaseModel):
    type: str
    json_schema: JsonSchema | None = None


class GenerationBody(ModelBody):
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    response_format: ResponseFormat | None = None


class CompletionBody(GenerationBody):
    prompt: str | list[str] | Ids | list[Ids]
    logprobs: int | None = None


class Part(BaseModel):
    type: str
    text: str | None = None


class Message(BaseModel):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[dict[str, JsonValue]] | None = None

    @property
    def text(self) -> str:
        """The text of all its parts."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text)
        return self.content or ""

    @property
    def media(self) -> int:
        """Parts that are no text: images, sounds, files."""
        return sum(part.text is None for part in self.content) if isinstance(self.content, list) else 0


class Function(BaseModel):
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None


class ToolBody(BaseModel):
    function: Function


class ChatBody(GenerationBody):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[ToolBody] | None = None
    tool_choice: str | ToolBody | None = None
    reasoning_effort: str | None = None
    continue_final_message: bool | None = None


class EmbeddingBody(ModelBody):
    input: str | list[str] | Ids | list[Ids]
    dimensions: int | None = Field(default=None, ge=1, le=4096)
    encoding_format: str | None = Field(default=None, pattern="^(float|base64)$")


class TokenizeBody(ModelBody):
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[ToolBody] | None = None
    return_token_strs: bool | None = None


B = TypeVar("B", bound=ModelBody)


def parse(kind: type[B], content_type: str, data: bytes) -> B:
    """Reads a request's body.

    Raises:
        CallRejected: It isn't declared as JSON, is no JSON object, or a field is missing or of another type.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        raise CallRejected(message, None, "media_type")
    if not data:
        raise _invalid([("missing", "body", "Field required", None)])
    try:
        value: JsonValue = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _invalid([("json_invalid", f"body.{error.pos}", "JSON decode error", {})], "json") from error
    return validated(kind, value)


def validated(kind: type[B], value: object) -> B:
    """Makes a body of what was JSON.

    Raises:
        CallRejected: It is no object, or a field is missing or of another type.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        # The branch of a union that failed is left out of the place, as vLLM does.
        mistakes = [
            (e["type"], ".".join(["body", *map(str, e["loc"][:1])]), e["msg"], e["input"]) for e in error.errors()
        ]
        raise _invalid(mistakes) from error


def _invalid(mistakes: list[tuple[str, str, str, object]], kind: RefusalKind = "shape") -> CallRejected:
    lines = [f"{len(mistakes)} validation error{'s' if len(mistakes) > 1 else ''}:"]
    for mistake, where, message, given in mistakes:
        shown = str(given)
        if isinstance(given, Sized) and not isinstance(given, str):
            shown = f"<{type(given).__name__} of {len(given)} items>"
        lines.append(f"  {{'type': {mistake!r}, 'loc': {where!r}, 'msg': {message!r}, 'input': {shown!r}}}")
    return CallRejected("\n".join(lines), mistakes[0][1], kind)
