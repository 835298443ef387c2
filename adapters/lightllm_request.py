"""A client's request, as LightLLM takes it.

It passes over fields that it does not know, ends requests with a null in a sampling field by a bare 500, and refuses
values of OpenAI's that are outside its own bounds. So what would change the shape of the answer is refused here by
name, what tunes the sampling is left out and named, and nulls, which mean the default, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from . import foreign_fields
from .bodies import BadBody, edit, read_whole, with_texts
from .json_values import as_list, as_object
from .lightllm_messages import developers, foreign_parts, system_messages, with_system_roles
from .types import EngineFailed, GatewayRequest, Unsupported, UpstreamRequest

# Of these, only the number of choices is fixed; the others are what it is built with unless its environment says other.
_MOST_CHOICES = 8
_MOST_STOPS = 10
_LONGEST_STOP_BYTES = 255
_LONGEST_SCHEMA_BYTES = 2047
_FORMATS = ("text", "json_object", "json_schema")
_UNREAD_SAMPLING = ("min_p", "min_tokens", "stop_token_ids", "typical_p", "repeat_last_n", "logit_bias")
# What others take and LightLLM does not. What nobody takes is left for it to refuse.
_OUT_OF_BOUNDS: Mapping[str, Callable[[float], bool]] = {
    "presence_penalty": lambda value: value < 0,
    "frequency_penalty": lambda value: value < 0,
    "repetition_penalty": lambda value: 0 < value < 1,
    "top_p": lambda value: value == 0,
    "top_k": lambda value: value == 0,
    "seed": lambda value: not -1 <= value < 2**63,
}
_EFFORTS = ("low", "medium", "high")
_NEAREST_EFFORT = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}


def encode_lightllm(request: GatewayRequest, model: str | None) -> UpstreamRequest:
    """Implements ``types.Adapter.encode``."""
    raw, body = request.raw, request.body
    add: dict[str, Any] = {}
    dropped: list[str] = []
    unset: list[str] = []
    try:
        body = with_texts(raw, body, ("suffix", *foreign_fields.SHAPES))
    except BadBody as error:
        raise EngineFailed(400, str(error)) from error
    match request.operation:
        case "embeddings":
            raise _unsupported("model", "cannot make embeddings: name a model of another engine")
        case "chat":
            _refuse_in_chat(body)
        case "text_completion":
            _refuse_in_text(body, stream=request.stream)
        case "other":
            pass
    if request.operation != "other":
        _refuse(body)
        dropped += _untaken(body)
        add |= _replaced(body, dropped, text=request.operation == "text_completion")
        if request.stream and not request.wants_usage:
            add["stream_options"] = request.options_for_usage()
        unset = [key for key, value in body.items() if value is None and key not in add]
        if body.get("logit_bias") == {}:
            unset.append("logit_bias")  # any but null is refused
        if "repetition_penalty" in add:
            unset.append("repeat_penalty")
    try:
        if request.operation == "chat" and (count := developers(body)):
            raw = _without_developers(raw, count)
        if body:
            raw = edit(raw, body, model=model, add=add, drop=[*unset, *dropped])
    except ValueError as error:
        raise EngineFailed(400, str(error)) from error
    return UpstreamRequest(request.path, raw, request.stream, tuple(dropped))


# --- what is refused


def _refuse_in_chat(body: Mapping[str, Any]) -> None:
    if body.get("functions"):
        raise _unsupported("functions", "does not know functions: send them as tools")
    if body.get("function_call") not in (None, "none"):
        raise _unsupported("function_call", "does not know function_call: send tools and tool_choice")
    for field in ("logprobs", "top_logprobs"):
        if body.get(field):
            raise _unsupported(field, "gives no log-probabilities in a chat")
    if body.get("audio") or "audio" in (as_list(body.get("modalities")) or ()):
        raise _unsupported("modalities", "answers in text only")
    for kind in foreign_parts(body):
        raise _unsupported("messages", f"takes no content part of type {kind[:64]!r}")


def _refuse_in_text(body: Mapping[str, Any], *, stream: bool) -> None:
    if body.get("suffix"):
        raise _unsupported("suffix", "writes nothing that comes before a suffix")
    if not stream:
        return
    logprobs = body.get("logprobs")
    if logprobs is not None and logprobs is not False:  # 0 asks for those of the chosen tokens
        raise _unsupported("logprobs", "gives no log-probabilities in a stream: send stream: false")
    prompts = as_list(body.get("prompt")) or []
    if len(prompts) > 1 and not isinstance(prompts[0], int):
        raise _unsupported("prompt", "streams the answer to one prompt only")


def _refuse(body: Mapping[str, Any]) -> None:
    n = body.get("n")
    if isinstance(n, int) and n > _MOST_CHOICES:
        raise _unsupported("n", f"gives at most {_MOST_CHOICES} choices")
    _refuse_stop(body.get("stop"))
    _refuse_format(as_object(body.get("response_format")))
    for field in foreign_fields.SHAPES:
        if body.get(field):
            raise _unsupported(field, "does not know it; the format of an answer is set by response_format")


def _refuse_stop(stop: Any) -> None:
    stops: list[Any] = as_list(stop) or [stop]
    if len(stops) > _MOST_STOPS:
        raise _unsupported("stop", f"takes at most {_MOST_STOPS} stop strings")
    if any(isinstance(text, str) and len(text.encode("utf-8", "replace")) > _LONGEST_STOP_BYTES for text in stops):
        raise _unsupported("stop", f"takes stop strings of at most {_LONGEST_STOP_BYTES} bytes")


def _refuse_format(wanted: Mapping[str, Any] | None) -> None:
    if wanted is None:
        return
    kind = wanted.get("type")
    if isinstance(kind, str) and kind not in _FORMATS:
        raise _unsupported("response_format", f"knows no format {kind[:64]!r}")
    schema = as_object((as_object(wanted.get("json_schema")) or {}).get("schema"))
    if schema is not None and _size_bytes(schema) > _LONGEST_SCHEMA_BYTES:
        raise _unsupported("response_format", f"takes a JSON schema of at most {_LONGEST_SCHEMA_BYTES} bytes")


def _size_bytes(schema: Mapping[str, Any]) -> int:
    """How long a schema is at least: LightLLM writes it no shorter."""
    try:
        return len(orjson.dumps(schema))
    except TypeError:  # nested too deeply to be written, by whomever
        return _LONGEST_SCHEMA_BYTES + 1


def _unsupported(field: str, why: str) -> Unsupported:
    return Unsupported(f"lightllm {why} ({field})", field)


# --- what is changed


def _untaken(body: Mapping[str, Any]) -> Iterator[str]:
    """Sampling fields that LightLLM does not know, or not with this value."""
    for field in _UNREAD_SAMPLING:
        if body.get(field):  # 0 and {} ask for nothing
            yield field
    if body.get("parallel_tool_calls") is False and body.get("tools"):
        yield "parallel_tool_calls"  # taken, and passed over
    for field, out_of_bounds in _OUT_OF_BOUNDS.items():
        value = body.get(field)
        if isinstance(value, int | float) and out_of_bounds(value):
            yield field


def _replaced(body: Mapping[str, Any], dropped: list[str], *, text: bool) -> dict[str, Any]:
    """Fields to set; names in ``dropped`` those that have no value LightLLM could take."""
    add: dict[str, Any] = {}
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        if isinstance(effort, str) and effort in _NEAREST_EFFORT:
            add["reasoning_effort"] = _NEAREST_EFFORT[effort]
        else:
            dropped.append("reasoning_effort")
    n, best_of = body.get("n"), body.get("best_of")
    choices = n if isinstance(n, int) and n > 1 else 1
    if best_of is not None and best_of != choices:
        dropped.append("best_of")
    if (penalty := body.get("repeat_penalty")) is not None:  # llama.cpp's and Ollama's name of it
        if body.get("repetition_penalty") is None and not (isinstance(penalty, int | float) and 0 < penalty < 1):
            add["repetition_penalty"] = penalty
        else:
            dropped.append("repeat_penalty")
    if text and choices > 1 and best_of != choices:
        add["best_of"] = choices  # 1 unless said, and must equal n
    return add


def _without_developers(raw: bytes, count: int) -> bytes:
    """Writes ``system`` for the role ``developer``, within the client's own bytes if that is safe.

    Raises:
        ValueError: Not JSON, in a part that was not looked at before.
    """
    spliced = with_system_roles(raw, count)
    if spliced is not None:
        return spliced
    whole = read_whole(raw)
    return edit(raw, whole, add={"messages": system_messages(whole.get("messages"))})
