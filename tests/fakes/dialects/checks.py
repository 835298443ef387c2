"""What engines check in a request: types by field, and what OpenAI's fields mean to an engine that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.fakes.dialects.answer import Ask, Json, Kind

_TESTS: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "bool": lambda v: isinstance(v, bool),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "strs": lambda v: isinstance(v, list) and all(isinstance(i, str) for i in v),  # pyright: ignore[reportUnknownVariableType]
    "list": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "repeat_penalty",
    "seed",
)


def as_object(value: Any) -> Json | None:
    """The value if it is an object."""
    return cast(Json, value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """The value if it is a list."""
    return value if isinstance(value, list) else None  # pyright: ignore[reportUnknownVariableType]


def fits(value: Any, kinds: str) -> bool:
    """Whether the value is of one of these kinds, by their names in ``_TESTS``."""
    return any(_TESTS[kind](value) for kind in kinds.split())


def misfit(body: Json, fields: Mapping[str, str]) -> str | None:
    """The first field that is there and of a wrong type."""
    return next((key for key, kinds in fields.items() if key in body and not fits(body[key], kinds)), None)


def given(body: Json, *names: str) -> Any:
    """The first of these fields that is neither left out nor null."""
    return next((body[name] for name in names if body.get(name) is not None), None)


def words(value: Any) -> tuple[str, ...]:
    """Stop strings, given as one or as a list."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def text_of(content: Any) -> str:
    """A message's text: a string, or the text parts of a list."""
    if (parts := as_list(content)) is not None:
        return "".join(part.get("text", "") for part in parts)
    return content if isinstance(content, str) else ""


def turns_of(messages: list[Json]) -> tuple[tuple[str, str], ...]:
    return tuple((str(m.get("role")), text_of(m.get("content"))) for m in messages)


def tool_names(tools: Any) -> tuple[str, ...]:
    listed: list[Json] = tools or []
    return tuple(tool["function"]["name"] for tool in listed)


def sampling_of(body: Json) -> tuple[tuple[str, Any], ...]:
    return tuple((name, body[name]) for name in SAMPLING if body.get(name) is not None)


def schema_of(response_format: Any) -> Json | None:
    """The schema in OpenAI's ``response_format``; {} for any JSON."""
    form = as_object(response_format) or {}
    if form.get("type") == "json_schema":
        schema: Json = form["json_schema"]["schema"]
        return schema
    return {} if form.get("type") == "json_object" else None


def openai_ask(body: Json, kind: Kind, *, default_stream: bool = False) -> Ask:
    """Reads a chat or text completion in OpenAI's words; the types are right already."""
    options: Json = body.get("stream_options") or {}
    chat = kind == "chat"
    logprobs = body.get("logprobs")
    top = (body.get("top_logprobs") or 0) if chat and logprobs else logprobs
    prompts: list[Any] = [body.get("prompt")]
    if (listed := as_list(prompts[0])) and not isinstance(listed[0], int):
        prompts = listed  # not one prompt of token ids
    return Ask(
        kind,
        str(body.get("model", "")),
        stream=bool(given(body, "stream") if "stream" in body else default_stream),
        usage=bool(options.get("include_usage")),
        n=body.get("n") or 1,
        prompts=len(prompts),
        max_tokens=given(body, "max_completion_tokens", "max_tokens") if chat else body.get("max_tokens"),
        stop=words(body.get("stop")),
        logprobs=top if isinstance(top, int) and top is not False else None,
        schema=schema_of(body.get("response_format")),
        tools=tool_names(body.get("tools")) if body.get("tool_choice") != "none" else (),
        named_tool=isinstance(body.get("tool_choice"), dict),
        turns=turns_of(body["messages"]) if chat else tuple(("", text_of(prompt)) for prompt in prompts),
        sampling=sampling_of(body),
    )


def openai_embed(body: Json) -> Ask:
    """Reads an embeddings request in OpenAI's words."""
    given_inputs = body["input"]
    return Ask(
        "embeddings",
        str(body.get("model", "")),
        inputs=1 if isinstance(given_inputs, str) else len(given_inputs),
        base64=body.get("encoding_format") == "base64",
    )
