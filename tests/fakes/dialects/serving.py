"""A whole engine on a loopback port: its endpoints, its pages, and all that it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from tests.fakes.dialects.answer import Ask, Json, Load, Say, answer
from tests.fakes.dialects.voice import OWN_MODEL, Refused, Voice
from tests.fakes.scripted import Request, Script, ScriptedUpstream


class Dialect:
    """One engine: subclasses say what its endpoints and pages are.

    The flags are facts of the engine that a gateway must know of; None where they are not known.

    Attributes:
        name: As in the gateway's configuration.
        calls_tools: It can call tools, in parallel if ``parallel_calls``.
        obeys_tool_choice: It calls a tool because the request says so (``required``, or the tool's name).
        choices: It makes several choices of one request (``n``).
        logprobs: It tells log-probabilities in chat.
        text_logprobs: It tells them in text completions.
        streams_text_logprobs: It does so in a stream.
        embeds: It makes embeddings.
        keeps_schemas: It can bind an answer to a JSON schema.
        refuses_when_full: It says so when it has no room; the others let requests wait.
        refuses_models: It refuses a model that it does not serve.
        tells_failures: It says what went wrong in the middle of a stream; the others break off.
        recognisable: What it says of itself is known, so that it can be told from the others.
        developer: It knows the role ``developer``.
        several_prompts: It completes several prompts at once.
        streams_several_prompts: It does so in a stream.
        tells_cached: Its usage tells how much of the prompt came from its cache.
        aborts: It ends an aborted answer like a whole one, with the reason ``abort``.
    """

    name: ClassVar[str]
    calls_tools: ClassVar[bool] = True
    parallel_calls: ClassVar[bool] = True
    obeys_tool_choice: ClassVar[bool] = True
    choices: ClassVar[bool | None] = True
    logprobs: ClassVar[bool | None] = True
    text_logprobs: ClassVar[bool | None] = True
    streams_text_logprobs: ClassVar[bool | None] = True
    embeds: ClassVar[bool] = True
    keeps_schemas: ClassVar[bool] = True
    refuses_when_full: ClassVar[bool] = True
    refuses_models: ClassVar[bool] = False
    tells_failures: ClassVar[bool] = True
    recognisable: ClassVar[bool] = True
    developer: ClassVar[bool | None] = None
    several_prompts: ClassVar[bool] = True
    streams_several_prompts: ClassVar[bool] = True
    tells_cached: ClassVar[bool] = False
    aborts: ClassVar[bool] = False

    def __init__(self, say: Say | None = None, *, load: Load | None = None) -> None:
        self.say = say or Say()
        self.load = load or Load()
        self.voices = self.endpoints()
        self.asks: list[Ask] = []

    def endpoints(self) -> Mapping[str, Voice]:
        """What generates, by path; all take POST."""
        raise NotImplementedError

    def pages(self) -> Mapping[str, Script]:
        """What GET gives: models, health, version, load, metrics."""
        raise NotImplementedError

    def embed(self, path: str, body: Json) -> Script | None:
        """An embeddings answer; None if this is not the path of one."""
        return None

    def lost(self, request: Request) -> Script:
        """The answer to a path that the engine has not."""
        raise NotImplementedError

    def unread(self, request: Request) -> Script:
        """The answer to a body that is not a JSON object."""
        raise NotImplementedError

    def turned_away(self, request: Request) -> Script | None:
        """The answer to a request whose headers it does not take."""
        return None

    def reply(self, request: Request) -> Script:
        """The whole answer to one request."""
        path = request.target.partition("?")[0]
        if (away := self.turned_away(request)) is not None:
            return away
        if request.method == "GET":
            return self.pages().get(path) or self.lost(request)
        try:
            body: object = json.loads(request.body)
        except ValueError:
            return self.unread(request)
        if not isinstance(body, dict):
            return self.unread(request)
        try:
            return self._post(path, body) or self.lost(request)  # pyright: ignore[reportUnknownArgumentType]
        except Refused as refused:
            return refused.script

    def _post(self, path: str, body: Json) -> Script | None:
        voice = self.voices.get(path)
        if voice is None:
            return self.embed(path, body)
        ask = voice.ask(body)
        self.asks.append(ask)
        return voice.answer(ask, answer(self.say, ask, most_calls=voice.most_calls, think_tags=voice.think_tags))


class DialectEngine(ScriptedUpstream):
    """A dialect that listens.

    Attributes:
        dialect: What it speaks.
    """

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect.reply)
        self.dialect = dialect

    @property
    def bodies(self) -> list[Json]:
        """The body of every POST so far, parsed."""
        return [request.json() for request in self.requests]

    @property
    def asks(self) -> list[Ask]:
        """What the engine understood of those that it did not refuse."""
        return self.dialect.asks

    @property
    def endpoint(self) -> dict[str, str]:
        """This engine in a pool's list of endpoints."""
        return {"url": self.url, "engine": self.dialect.name, "model": OWN_MODEL}

    def script_for(self, request: Request) -> Script:
        (self.probes if request.method == "GET" else self.requests).append(request)
        return self.dialect.reply(request)


@asynccontextmanager
async def serving(dialect: Dialect) -> AsyncGenerator[DialectEngine]:
    """Lets the dialect listen on a free port of 127.0.0.1."""
    async with DialectEngine(dialect) as engine:
        yield engine
