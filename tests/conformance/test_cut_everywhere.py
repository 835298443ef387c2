"""No cut loses anything: each scripted engine's body, however it is cut, gives the client the engine's own text.

Without sockets: the engine's steps give the body, and the codec reads it. What the client must read is taken from what
the engine was told to say, token for token. ``tests/adapters/test_recordings.py`` does the same with real engines.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import pytest

from adapters import ADAPTERS
from adapters.types import Adapter, Answer, GatewayRequest, Usage
from tests.conformance.rig import ENGINES, TOOLS
from tests.fakes.answer_heads import answer_head
from tests.fakes.dialects.answer import Call, Json, Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import Dialect
from tests.fakes.dialects.voice import OWN_MODEL
from tests.fakes.raw_client import r0, t0
from tests.fakes.scripted import Body, Head, Request

RANDOM_CUTTINGS = 30
PROMPT_TOKENS, COMPLETION_TOKENS = 12, 7

# Tokens as they come out of models: two, three and four bytes a character, joiners, a mark of byte order, what some
# programs take for the end of a line, what cannot be shown.
WORDS = ("\ufeffGrü", "ße, ", "北京", " 🧑\u200d🚀", " ", "\u2028\x85", "\x00\x1b\ufffd", "!")
# What must be escaped, and what looks like the engine's own framing once it is.
CODE = ('{"a', '":"x\\"', "\\n", '"', '"},"finish_reason":"stop"', "\n\n", "data: [DONE]\r\n", "\\", "</think>")
TAGGED = ("<thi", "nk>\nLet ", "me 考", "</th", "ink>", "\n\nNo", " <b>")

WEATHER = Call("get_weather", ('{"city":"', "Tromsø", ' \\"N\\"', '\\n🌧"', ',"days":2}'))
TIME = Call("get_time", ('{"zone', '":"Europe/', 'Oslo"}'))


Can = Callable[[type[Dialect], bool], bool | None]
"""Whether an engine can do something, in a stream or not; None if it is not known, and its script does it."""


def always(dialect: type[Dialect], stream: bool) -> bool | None:
    return True


def logprobs(dialect: type[Dialect], stream: bool) -> bool | None:
    return dialect.logprobs


def text_logprobs(dialect: type[Dialect], stream: bool) -> bool | None:
    return dialect.streams_text_logprobs if stream else dialect.text_logprobs


def several_choices(dialect: type[Dialect], stream: bool) -> bool | None:
    return dialect.choices


def several_prompts(dialect: type[Dialect], stream: bool) -> bool | None:
    return dialect.streams_several_prompts if stream else dialect.several_prompts


class Case(NamedTuple):
    """One call of a client, and what it must read.

    Attributes:
        body: The request without ``stream`` and ``stream_options``.
        say: What the engine says.
        told: What the client reads, where that is not the same.
        usage: The client asks for it in a stream.
        choices: How many there are.
        can: Which engines are asked.
    """

    name: str
    body: Json
    say: Say
    told: Say | None = None
    usage: bool = True
    choices: int = 1
    can: Can = always

    @property
    def chat(self) -> bool:
        return "messages" in self.body

    @property
    def prompts(self) -> int:
        return 1 if self.chat or isinstance(self.body["prompt"], str) else len(self.body["prompt"])


def say(**told: Any) -> Say:
    return Say(tokens=COMPLETION_TOKENS, prompt_tokens=PROMPT_TOKENS, **told)


CASES = (
    Case("words", r0(), say(text=WORDS)),
    Case("no usage", r0(), say(text=WORDS), usage=False),
    Case("code", r0(), say(text=CODE)),
    Case("the engine's own name", r0(model=OWN_MODEL), say(text=CODE)),  # its chunks pass as they are
    Case("keep-alives", r0(), say(text=WORDS[:4], slow=True)),
    Case("length", r0(), say(text=WORDS[:3], finish="length")),
    Case("reasoning", r0(), say(reasoning=("Let ", "me\n", "考え"), text=WORDS[:4])),
    Case("tags", r0(), say(text=TAGGED), say(reasoning=("\nLet ", "me 考"), text=("\n\nNo", " <b>"))),
    Case("no tag", r0(), say(text=("<th", "at>", " is")), say(text=("<that>", " is"))),
    Case("one call", r0(tools=TOOLS), say(text=(), calls=(WEATHER,))),
    Case("two calls", r0(tools=TOOLS), say(text=(), calls=(WEATHER, TIME))),
    Case("logprobs", r0(logprobs=True, top_logprobs=1), say(text=WORDS[:4]), can=logprobs),
    Case("choices", r0(n=2), say(text=WORDS[:4]), choices=2, can=several_choices),
    Case("completion", t0(), say(text=WORDS)),
    Case("completion of code", t0(), say(text=CODE)),
    Case("completion with tags", t0(), say(text=TAGGED)),
    Case("completion with logprobs", t0(logprobs=1), say(text=WORDS[:4]), can=text_logprobs),
    Case("two prompts", t0(prompt=["one", "two"]), say(text=WORDS[:5]), choices=2, can=several_prompts),
)


def every_case(*, stream: bool) -> pytest.MarkDecorator:
    """Runs a test for each engine with all that it can do."""
    pairs = [(name, case) for name in ENGINES for case in CASES if case.can(DIALECTS[name], stream) is not False]
    return pytest.mark.parametrize(
        ("name", "case"), [pytest.param(name, case, id=f"{name}-{case.name}") for name, case in pairs]
    )


# --- what the engine sends


class Exchange(NamedTuple):
    """One request as Weir sent it, and the engine's answer.

    Attributes:
        streamed: The engine was asked for a stream.
        body: The answer's, without chunk framing.
    """

    adapter: Adapter
    request: GatewayRequest
    streamed: bool
    content_type: str
    body: bytes


@cache
def exchange(name: str, case_name: str, *, stream: bool) -> Exchange:
    case = next(case for case in CASES if case.name == case_name)
    body: Json = {**case.body, "stream": stream}
    if stream and case.usage:
        body["stream_options"] = {"include_usage": True}
    request = GatewayRequest(
        request_id="r1",
        operation="chat" if case.chat else "text_completion",
        path="/v1/chat/completions" if case.chat else "/v1/completions",
        method="POST",
        model=body["model"],
        stream=stream,
        raw=json.dumps(body).encode(),
        body=body,
        created_unix_s=0,
    )
    adapter = ADAPTERS[name]
    sent = adapter.encode(request, OWN_MODEL)
    headers = [(b"host", b"127.0.0.1:1"), (b"content-type", b"application/json")]
    script = DIALECTS[name](case.say).reply(Request(b"POST %b HTTP/1.1" % sent.path.encode(), headers, sent.body, 0.0))
    (head,) = (step for step in script if isinstance(step, Head))
    answer = b"".join(step.data for step in script if isinstance(step, Body))
    assert head.status == 200, answer
    (content_type,) = (value for key, value in head.headers if key.lower() == "content-type")
    return Exchange(adapter, request, sent.stream, content_type, answer)


# --- what the client reads

Read = dict[tuple[int, str], tuple[str, ...]]


class Decoded(NamedTuple):
    """What a decoder said of one body."""

    out: bytes
    outputs: int
    usage: Usage | None
    finished: bool


def decoded(sent: Exchange, pieces: Iterable[bytes]) -> Decoded:
    decoder = sent.adapter.stream_decoder(sent.request)
    out: list[bytes] = []
    for piece in pieces:
        out.append(decoder.feed(piece))
        assert not out[-1] or out[-1].endswith(b"\n\n"), "not whole frames"
    out.append(decoder.close())
    return Decoded(b"".join(out), decoder.outputs, decoder.usage, decoder.finished)


def answered(sent: Exchange, pieces: Iterable[bytes]) -> Answer:
    reader = sent.adapter.answer_reader(sent.request, answer_head(sent.content_type), streamed=sent.streamed)
    for piece in pieces:
        reader.feed(piece)
    return reader.close()


def chunks_of(out: bytes) -> list[Json]:
    """Reads the frames for the client: one ``data: `` line of JSON each, and nothing else."""
    blocks = out.split(b"\n\n")
    assert blocks.pop() == b""
    assert all(block.startswith(b"data: {") and b"\n" not in block and b"\r" not in block for block in blocks)
    return [json.loads(block[6:]) for block in blocks]


def read(payloads: Iterable[Json]) -> Read:
    """All pieces that are not empty, by choice and kind, from chunks or from a whole answer."""
    found: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for payload in payloads:
        for choice in payload["choices"]:
            for kind, piece in _pieces(choice):
                if piece:
                    found[choice["index"], kind].append(piece)
    return {key: tuple(pieces) for key, pieces in found.items()}


def _pieces(choice: Json) -> Iterator[tuple[str, str | None]]:
    said: Json = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    for kind in ("content", "reasoning", "reasoning_content"):
        yield kind, said.get(kind)
    calls: list[Json] = said.get("tool_calls") or []
    for at, call in enumerate(calls):
        for kind in ("name", "arguments"):
            yield f"{kind} {call.get('index', at)}", call["function"].get(kind)
    logprobs: Json = choice.get("logprobs") or {}
    for token in logprobs.get("tokens") or [entry["token"] for entry in logprobs.get("content") or ()]:
        yield "logprobs", token
    yield "finish", choice.get("finish_reason")


def expected(name: str, case: Case) -> Read:
    """What the engine says, token for token. Ollama has tool calls whole."""
    told = case.told if case.told is not None else case.say
    calls = told.calls if DIALECTS[name].parallel_calls else told.calls[:1]
    kinds: dict[str, tuple[str, ...]] = {
        "content": told.text,
        "reasoning": told.reasoning,
        "reasoning_content": told.reasoning,
        "logprobs": told.text if case.body.get("logprobs") else (),
        "finish": ("tool_calls" if calls else told.finish,),
    }
    for at, call in enumerate(calls):
        kinds[f"name {at}"] = (call.name,)
        kinds[f"arguments {at}"] = ("".join(call.arguments),) if name == "ollama" else call.arguments
    return {(index, kind): pieces for index in range(case.choices) for kind, pieces in kinds.items() if pieces}


def expected_counts(case: Case) -> tuple[int, int, int]:
    prompt, completion = PROMPT_TOKENS * case.prompts, COMPLETION_TOKENS * case.choices
    return prompt, completion, prompt + completion


def counts(payload: Json) -> tuple[int, int, int]:
    usage = payload["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


def has_output(chunk: Json) -> bool:
    return any(kind not in ("finish", "logprobs") for _, kind in read([chunk]))


# --- cuts


def in_two(body: bytes) -> Iterator[list[bytes]]:
    return ([body[:at], body[at:]] for at in range(1, len(body)))


def single_bytes(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


def at_random(body: bytes, seed: str) -> Iterator[list[bytes]]:
    """From a few large pieces to many small ones; some are empty."""
    random = Random(seed)
    for _ in range(RANDOM_CUTTINGS):
        edges = sorted(random.choices(range(len(body) + 1), k=random.randint(2, 60)))
        yield [body[start:stop] for start, stop in pairwise([0, *edges, len(body)])]


# --- streams


@every_case(stream=True)
def test_a_stream_joined_is_the_engines_own_text_token_for_token(name: str, case: Case) -> None:
    sent = exchange(name, case.name, stream=True)
    got = decoded(sent, [sent.body])
    chunks = chunks_of(got.out)
    assert read(chunks) == expected(name, case)
    assert {chunk["model"] for chunk in chunks} == {sent.request.model}
    assert got.outputs == sum(map(has_output, chunks))
    assert got.finished
    assert got.usage is not None
    assert not got.usage.estimated
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == expected_counts(case)[:2]
    assert [counts(chunk) for chunk in chunks if chunk.get("usage")] == [expected_counts(case)] * case.usage


@every_case(stream=True)
def test_a_stream_cut_in_two_at_any_byte_comes_out_the_same(name: str, case: Case) -> None:
    sent = exchange(name, case.name, stream=True)
    whole = decoded(sent, [sent.body])
    for pieces in in_two(sent.body):
        assert decoded(sent, pieces) == whole, f"cut at {len(pieces[0])}"


@every_case(stream=True)
def test_a_stream_fed_byte_by_byte_comes_out_the_same(name: str, case: Case) -> None:
    sent = exchange(name, case.name, stream=True)
    assert decoded(sent, single_bytes(sent.body)) == decoded(sent, [sent.body])


@every_case(stream=True)
def test_a_stream_cut_at_random_comes_out_the_same(name: str, case: Case) -> None:
    sent = exchange(name, case.name, stream=True)
    whole = decoded(sent, [sent.body])
    for pieces in at_random(sent.body, seed=f"{name} {case.name}"):
        assert decoded(sent, pieces) == whole, [len(piece) for piece in pieces]


# --- whole answers


@every_case(stream=False)
def test_a_whole_answer_has_the_engines_own_text(name: str, case: Case) -> None:
    sent = exchange(name, case.name, stream=False)
    got = answered(sent, [sent.body])
    answer: Json = json.loads(got.body)
    by_token = expected(name, case)
    assert read([answer]) == {
        key: pieces if key[1] == "logprobs" else ("".join(pieces),) for key, pieces in by_token.items()
    }
    assert answer["model"] == sent.request.model
    assert counts(answer) == expected_counts(case)
    assert got.usage is not None
    assert not got.usage.estimated
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == expected_counts(case)[:2]


@every_case(stream=False)
def test_a_whole_answer_cut_anywhere_comes_out_the_same(name: str, case: Case) -> None:
    sent = exchange(name, case.name, stream=False)
    whole = answered(sent, [sent.body])
    for pieces in in_two(sent.body):
        assert answered(sent, pieces) == whole, f"cut at {len(pieces[0])}"
    assert answered(sent, single_bytes(sent.body)) == whole
    for pieces in at_random(sent.body, seed=f"{name} {case.name}"):
        assert answered(sent, pieces) == whole, [len(piece) for piece in pieces]
