"""What an engine is to say, what it was asked for, and what it says then: in no engine's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Json = dict[str, Any]
Finish = Literal["stop", "length", "tool_calls", "abort"]
Kind = Literal["chat", "text", "embeddings"]
Busy = Literal["no", "refused", "late"]


class Call(NamedTuple):
    """One tool call; its arguments in the pieces in which the model writes them."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """What the engine is to say to every request.

    Attributes:
        text: The answer, a token each.
        reasoning: What comes before it.
        calls: Tool calls, made only by an engine that was given tools.
        finish: How the answer ends, unless the request's own limit or stop string ends it first; ``abort`` is what some
            engines say of an answer that their operator ended.
        slow: It sends its keep-alive comment before each piece, if it has one.
        tokens: Completion tokens; None counts the pieces.
        fails_after: The engine reports a failure of its own after so many pieces; 0 is before the first.
        cut_after: The connection breaks after so many pieces.
        busy: It has no room: ``late`` is the race in which that is found only when the stream has begun.
        timed: It was started so that it tells its times, where that is an option.
        message: Its words for the failure.
        vectors: Embeddings, one an input.
    """

    text: tuple[str, ...] = ("Hel", "lo, ", "wörld", "/北京")
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: Literal["stop", "length", "abort"] = "stop"
    slow: bool = False
    prompt_tokens: int = 12
    cached_tokens: int = 4
    tokens: int | None = None
    fails_after: int | None = None
    cut_after: int | None = None
    busy: Busy = "no"
    timed: bool = False
    message: str = "the engine's own words"
    vectors: tuple[tuple[float, ...], ...] = ((0.5, -0.25, 1.0), (0.0, 2.0, -1.5))


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine says of itself when it is scraped."""

    running: int = 3
    waiting: int = 2
    kv_usage_ratio: float = 0.25
    context_tokens: int = 4096
    slots: int = 4


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as the engine understood it; fields that it ignores are as if they had not been sent.

    Attributes:
        kind: What is asked for.
        model: The model's name in the request.
        stream: Whether the answer is to be streamed.
        usage: Whether the end of a stream is to tell the token counts.
        n: Choices for each prompt.
        prompts: Prompts, which only a completion can have several of.
        max_tokens: The limit of the answer, or None.
        stop: Stop strings.
        logprobs: How many alternatives a token; None for no log-probabilities at all.
        schema: The JSON schema that the answer must keep to; {} for any JSON, None for text.
        tools: Names of the tools that may be called.
        named_tool: The request names the one tool that must be called.
        turns: Role and text of each message; a completion has one of role "".
        sampling: Temperature, penalties and the like, by the engine's own names.
        inputs: Number of texts to embed.
        base64: Whether embeddings are wanted in base64.
    """

    kind: Kind
    model: str
    stream: bool = False
    usage: bool = False
    n: int = 1
    prompts: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    schema: Json | None = None
    tools: tuple[str, ...] = ()
    named_tool: bool = False
    turns: tuple[tuple[str, str], ...] = ()
    sampling: tuple[tuple[str, Any], ...] = ()
    inputs: int = 1
    base64: bool = False

    @property
    def choices(self) -> int:
        """How many there are in the answer: n for the first prompt, n for the next."""
        return self.n * self.prompts


class Output(NamedTuple):
    """One piece of an answer; ``call`` counts tool calls, whose first piece (``call``) holds the name."""

    kind: Literal["reasoning", "text", "call", "arguments"]
    text: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """The answer to one request: every choice says the same.

    Attributes:
        outputs: Its pieces; never none, but the only one may be an empty text.
        finish: Why it ends.
        stopped_by: The stop string that ended it.
    """

    outputs: tuple[Output, ...]
    finish: Finish
    stopped_by: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def text(self) -> str:
        return "".join(o.text for o in self.outputs if o.kind == "text")

    @property
    def reasoning(self) -> str:
        return "".join(o.text for o in self.outputs if o.kind == "reasoning")

    @property
    def pieces(self) -> list[str]:
        return [o.text for o in self.outputs if o.kind == "text" and o.text]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Names and whole arguments."""
        names = [o.text for o in self.outputs if o.kind == "call"]
        parts = [o for o in self.outputs if o.kind == "arguments"]
        return [(name, "".join(o.text for o in parts if o.call == i)) for i, name in enumerate(names)]


def answer(say: Say, ask: Ask, *, most_calls: int | None = None, think_tags: bool = False) -> Said:
    """Returns what this engine says to this request.

    Args:
        say: What the test wants.
        ask: What the engine understood.
        most_calls: How many tool calls it can make.
        think_tags: It has no field for reasoning: that comes as text between tags.
    """
    outputs = [Output("reasoning", piece) for piece in say.reasoning]
    if think_tags and outputs:
        outputs = [Output("text", piece) for piece in ("<think>", *say.reasoning, "</think>")]
    text, stopped_by = _until_stop(say.text, ask.stop)
    outputs += [Output("text", piece) for piece in text]
    calls = [call for call in say.calls if call.name in ask.tools][:most_calls]
    for i, call in enumerate(calls):
        outputs.append(Output("call", call.name, i))
        outputs += [Output("arguments", piece, i) for piece in call.arguments]
    finish: Finish = "tool_calls" if calls and say.finish == "stop" else say.finish
    if ask.max_tokens is not None and len(outputs) > ask.max_tokens:
        outputs, finish, stopped_by = outputs[: ask.max_tokens], "length", None
    tokens = len(outputs) if say.tokens is None else say.tokens
    whole = tuple(outputs) or (Output("text", ""),)
    return Said(whole, finish, stopped_by, say.prompt_tokens, tokens, say.cached_tokens)


def _until_stop(pieces: tuple[str, ...], stop: tuple[str, ...]) -> tuple[list[str], str | None]:
    """The pieces up to the first stop string."""
    text = "".join(pieces)
    ends = [(at, word) for word in stop if (at := text.find(word)) >= 0]
    if not ends:
        return list(pieces), None
    left, word = min(ends)
    kept: list[str] = []
    for piece in pieces:
        if left > 0:
            kept.append(piece[:left])
        left -= len(piece)
    return kept, word
