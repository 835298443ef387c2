"""From a client's call to what has to be generated; values that vLLM refuses are refused in its words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from gateway.simulator.bodies import (
    CallRejected,
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    GenerationBody,
    Message,
    RefusalKind,
    ResponseFormat,
    ToolBody,
)
from gateway.simulator.json_values import BadSchema
from gateway.simulator.text import Answer, Assignment, FinishReason, Tool, compose, count_tokens, cut, tool_for

_PART_TOKENS = 256  # an image or a sound
_TEMPLATE_TOKENS = 4  # around each message
_MAX_LOGPROBS = 20
_MAX_N = 16_384
_MAX_PROMPTS = 1_024
_THOUGHTS = {"none": 0, "minimal": 1, "low": 1, "medium": 2, "high": 3, "xhigh": 4, "max": 6}  # sentences
_JSON_OBJECT: JsonValue = {"type": "object", "properties": {"topic": {}, "answer": {}}}
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: 0 <= value <= 2, "in [0, 2]"),
    "top_p": (lambda value: 0 < value <= 1, "in (0, 1]"),
    "min_p": (lambda value: 0 <= value <= 1, "in [0, 1]"),
    "presence_penalty": (lambda value: -2 <= value <= 2, "in [-2, 2]"),
    "frequency_penalty": (lambda value: -2 <= value <= 2, "in [-2, 2]"),
    "repetition_penalty": (lambda value: value > 0, "greater than zero"),
    "top_k": (lambda value: value >= -1, "at least -1"),
    "min_tokens": (lambda value: value >= 0, "at least 0"),
    "n": (lambda value: 1 <= value <= _MAX_N, f"in [1, {_MAX_N}]"),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text (token ids as their digits) and its length."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What a chat or completion call asks for.

    Attributes:
        logprobs: Alternatives wanted with each token, or None for no log probabilities.
        answers: One for each prompt and choice, the choices of a prompt side by side.
    """

    model: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: int | None
    prompts: tuple[Prompt, ...]
    answers: tuple[Answer, ...]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(prompt.tokens for prompt in self.prompts)

    def prompt_of(self, choice: int) -> Prompt:
        """Returns the prompt that a choice answers."""
        return self.prompts[choice * len(self.prompts) // len(self.answers)]


@dataclass(frozen=True, slots=True)
class Embedding:
    """What an embeddings call asks for."""

    model: str
    inputs: tuple[Prompt, ...]
    dimensions: int
    base64: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """Where engines differ in what they take. The defaults are vLLM's.

    Attributes:
        names: What a name does that isn't served: it is refused, or echoed, or the default's stands in its place.
        completion_tokens: The limit of a completion that sets none; None for the rest of the context.
        clamps: A limit above the context is lowered rather than refused, a negative one is none, and 0 is 1.
        refuses_overflow: A prompt and a limit that only fit one by one are refused rather than the limit lowered.
        truncates: A prompt above the context is cut rather than refused.
        max_stops: Most stop strings, or None.
        checks_ranges: Sampling parameters out of range are refused.
        counts_choices: ``n`` is more than an ignored field.
        named_finish: How the call of a function that the client named ends.
        thinks: ``reasoning_effort`` has an effect.
        goes_on: When a last message of the assistant's is gone on with: if ``continue_final_message`` says so, always,
            or never, so that it is a turn of the past.
    """

    names: Literal["refused", "echoed", "ignored"] = "refused"
    completion_tokens: int | None = 16
    clamps: bool = False
    refuses_overflow: bool = False
    truncates: bool = False
    max_stops: int | None = 4
    checks_ranges: bool = True
    counts_choices: bool = True
    named_finish: FinishReason = "stop"
    thinks: bool = True
    goes_on: Literal["flagged", "always", "never"] = "never"


@dataclass(frozen=True, slots=True)
class CallReader:
    """Reads calls for an engine that answers to ``models`` (the first is the default) within ``context_tokens``.

    Its methods raise ``CallRejected``.
    """

    models: tuple[str, ...]
    context_tokens: int
    rules: Rules = Rules()

    def chat(self, body: ChatBody) -> Generation:
        """Reads a call of /v1/chat/completions."""
        try:
            return self._chat(body)
        except CallRejected as error:
            error.streaming = bool(body.stream)
            raise

    def completion(self, body: CompletionBody) -> Generation:
        """Reads a call of /v1/completions."""
        try:
            return self._completion(body)
        except CallRejected as error:
            error.streaming = bool(body.stream)
            raise

    def _chat(self, body: ChatBody) -> Generation:
        if not body.messages:
            raise _bad("Cannot apply chat template to an empty conversation. Provide at least one message.", None)
        last = body.messages[-1]
        question = next((m for m in reversed(body.messages) if m.role == "user"), last).text
        tool = _chosen_tool(body, "" if last.role == "tool" else question)
        if body.top_logprobs and not body.logprobs:
            raise _bad("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        begun = last.text if last.role == "assistant" and self._goes_on(body) else ""
        assignment = Assignment(
            question,
            begun=begun,
            thoughts=_THOUGHTS.get(body.reasoning_effort or "none", 1) if self.rules.thinks else 0,
            tool_result=last.text if last.role == "tool" else None,
            tool=tool,
            json_schema=_json_schema(body.response_format) if tool is None else None,
        )
        max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        tokens = chat_tokens(body.messages, body.tools) - (_TEMPLATE_TOKENS if begun else 0)
        prompts = (Prompt(question, tokens),)
        return self._generation(body, prompts, assignment, max_tokens, logprobs)

    def _goes_on(self, body: ChatBody) -> bool:
        return self.rules.goes_on == "always" or (self.rules.goes_on == "flagged" and bool(body.continue_final_message))

    def _completion(self, body: CompletionBody) -> Generation:
        prompts = _prompts(body.prompt)
        if not 1 <= len(prompts) <= _MAX_PROMPTS:
            raise _bad(f"prompt must hold 1 to {_MAX_PROMPTS} prompts, got {len(prompts)}.", "prompt")
        assignment = Assignment("", continues=True, json_schema=_json_schema(body.response_format))
        max_tokens = self.rules.completion_tokens if body.max_tokens is None else body.max_tokens
        return self._generation(body, prompts, assignment, max_tokens, body.logprobs)

    def embedding(self, body: EmbeddingBody) -> Embedding:
        """Reads a call of /v1/embeddings."""
        model, inputs = self.model(body.model), _prompts(body.input)
        fitting = tuple(self._fitting(item) for item in inputs)
        return Embedding(model, fitting, body.dimensions or 384, body.encoding_format == "base64")

    def model(self, named: str | None) -> str:
        """Returns the name that an answer gives back: the one in the call, or the default's."""
        model = named or self.models[0]
        if model in self.models or self.rules.names == "echoed":
            return model
        if self.rules.names == "ignored":
            return self.models[0]
        message = f"The model `{model}` does not exist. Valid aliases: {', '.join(self.models)}."
        raise CallRejected(message, "model", "unknown_model")

    def _generation(
        self,
        body: GenerationBody,
        prompts: tuple[Prompt, ...],
        assignment: Assignment,
        max_tokens: int | None,
        logprobs: int | None,
    ) -> Generation:
        model = self.model(body.model)
        stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
        if self.rules.max_stops is not None and len(stop) > self.rules.max_stops:
            message = f"1 validation error: List should have at most {self.rules.max_stops} items, not {len(stop)}"
            raise CallRejected(message, "body.stop", "shape")
        if logprobs is not None and not 0 <= logprobs <= _MAX_LOGPROBS:
            message = f"Requested sample logprobs of {logprobs}, which is greater than max allowed: {_MAX_LOGPROBS}"
            raise _bad(message, "logprobs", logprobs)
        if self.rules.checks_ranges:
            _check_sampling(body)
        if self.rules.clamps and max_tokens is not None:
            max_tokens = None if max_tokens < 0 else max(1, max_tokens)
        if max_tokens is not None and max_tokens > self.context_tokens and not self.rules.clamps:
            message = f"max_tokens={max_tokens} cannot be greater than max_model_len={self.context_tokens}. "
            raise _bad(message + "Please request fewer output tokens.", "max_tokens", max_tokens)
        named = isinstance(body, ChatBody) and isinstance(body.tool_choice, ToolBody)
        called: FinishReason = self.rules.named_finish if named else "tool_calls"
        finish: FinishReason = called if assignment.tool is not None else "stop"
        prompts = tuple(self._fitting(prompt) for prompt in prompts)
        answers: list[Answer] = []
        for prompt in prompts:
            room = self.context_tokens - prompt.tokens
            if self.rules.refuses_overflow and max_tokens is not None and max_tokens > room:
                message = (
                    f"`inputs` tokens + `max_new_tokens` must be <= {self.context_tokens}. Given: {prompt.tokens} "
                )
                raise _bad(f"{message}`inputs` tokens and {max_tokens} `max_new_tokens`", None, None, "too_long")
            most = room if max_tokens is None else min(max_tokens, room)
            if most < 1:
                raise _bad(f"max_tokens must be at least 1, got {most}.", "max_tokens", most)
            least = most + 1 if body.ignore_eos else min(body.min_tokens or 0, most)
            task = replace(assignment, prompt=assignment.prompt or prompt.text, min_tokens=least)
            for choice in range((body.n or 1) if self.rules.counts_choices else 1):
                try:
                    pieces = compose(replace(task, seed=(body.seed or 0) + choice))
                except BadSchema as error:
                    raise _bad(f"Grammar error: {error}", None) from error
                answers.append(cut(pieces, most, stop, finish_reason=finish))
        options = body.stream_options
        return Generation(
            model=model,
            stream=bool(body.stream),
            include_usage=options is not None and bool(options.include_usage),
            continuous_usage=options is not None and bool(options.continuous_usage_stats),
            logprobs=logprobs,
            prompts=prompts,
            answers=tuple(answers),
        )

    def _fitting(self, prompt: Prompt) -> Prompt:
        if self.rules.truncates:
            return replace(prompt, tokens=min(prompt.tokens, self.context_tokens // 2))
        if prompt.tokens > self.context_tokens:
            message = (
                f"This model's maximum context length is {self.context_tokens} tokens. However, your prompt contains "
                f"at least {self.context_tokens + 1} input tokens, which exceeds this limit even without any output "
                f"tokens. Please reduce the length of the input prompt."
            )
            error = _bad(message, "input_tokens", self.context_tokens + 1, "too_long")
            error.sizes = (prompt.tokens, self.context_tokens)
            raise error
        return prompt


def chat_tokens(messages: Sequence[Message], tools: Sequence[ToolBody] | None) -> int:
    """Returns the length of a chat's prompt: its messages, the template around them, and the tools."""
    tokens = 0
    for message in messages:
        calls = json.dumps(message.tool_calls) if message.tool_calls else ""
        tokens += count_tokens(message.text) + count_tokens(calls) + message.media * _PART_TOKENS + _TEMPLATE_TOKENS
    return tokens + sum(count_tokens(tool.model_dump_json()) for tool in tools or ())


def _prompts(value: str | list[str] | list[int] | list[list[int]]) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (Prompt(value, max(1, count_tokens(value))),)
    ids = [item for item in value if isinstance(item, int)]
    if ids:
        return (Prompt(" ".join(map(str, ids)), len(ids)),)
    return tuple(prompt for item in value if not isinstance(item, int) for prompt in _prompts(item))


def _check_sampling(body: GenerationBody) -> None:
    for name, (allowed, text) in _RANGES.items():
        value: float | None = getattr(body, name)
        if value is not None and not allowed(value):
            raise _bad(f"{name} must be {text}, got {value}.", name, value)
    if (body.n or 1) > 1 and body.temperature == 0:
        raise _bad(f"n must be 1 when using greedy sampling, got {body.n}.", "n", body.n)
    if body.stream_options is not None and not body.stream:
        raise _bad("Stream options can only be defined when `stream=True`.", "stream_options")


def _chosen_tool(body: ChatBody, question: str) -> Tool | None:
    choice, tools = body.tool_choice, [tool.function for tool in body.tools or ()]
    if body.tools is not None and not tools:
        raise _bad("tools must not be empty; leave it out.", "tools")
    if not tools and choice not in (None, "none"):
        raise _bad("When using `tool_choice`, `tools` must be set.", "tool_choice")
    offered = [Tool(tool.name, tool.description or "", tool.parameters) for tool in tools]
    if isinstance(choice, ToolBody):
        offered = [tool for tool in offered if tool.name == choice.function.name]
        choice = "required" if offered else choice.function.name
    if choice not in (None, "none", "auto", "required"):
        raise _bad("`tool_choice` must be none, auto, required or name one of the `tools`.", "tool_choice")
    likely = tool_for(offered, question) if choice != "none" else None
    return likely or (offered[0] if choice == "required" else None)


def _json_schema(wanted: ResponseFormat | None) -> JsonValue:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return _JSON_OBJECT
    if wanted.type != "json_schema" or wanted.json_schema is None:
        raise _bad("response_format must be text, json_object, or json_schema with a `schema`.", "response_format")
    return wanted.json_schema.body


def _bad(message: str, param: str | None, value: object = None, kind: RefusalKind = "value") -> CallRejected:
    if param is not None:
        message += f" (parameter={param})" if value is None else f" (parameter={param}, value={value})"
    return CallRejected(message, param, kind)
