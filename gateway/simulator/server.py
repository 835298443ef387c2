"""The simulated engine as an ASGI application: vLLM's routes over one batch."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from starlette.types import Receive, Scope, Send

from gateway.simulator.batching import Pace
from gateway.simulator.bodies import (
    B,
    CallRejected,
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    TokenizeBody,
    parse,
)
from gateway.simulator.calls import CallReader, Generation, chat_tokens
from gateway.simulator.engine import Engine, Job
from gateway.simulator.exchange import ClientLeft, Exchange
from gateway.simulator.text import pieces_of, token_id
from gateway.simulator.wire import DONE, VERSION, Fields, GenerationWire, embedding_body, error_body


@dataclass(frozen=True, slots=True)
class Settings:
    """What one engine is.

    Attributes:
        models: The names it answers to; the first is the default and the label of its metrics.
        context_tokens: Most tokens of a prompt and its answer together.
        seed: Of the jitter.
    """

    models: tuple[str, ...] = ("simulated",)
    pace: Pace = field(default_factory=Pace)
    context_tokens: int = 8192
    seed: int = 0


class SimulatedEngine:
    """An ASGI application. Serve it in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started_unix_s = int(time.time())
        self._reader = CallReader(settings.models, settings.context_tokens)
        self._engine = Engine(settings.pace, settings.seed, settings.pace.slots * settings.context_tokens)
        self._routes: dict[str, tuple[str, Callable[[Exchange], Awaitable[None]]]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/v1/embeddings": ("POST", self._embeddings),
            "/tokenize": ("POST", self._tokenize),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/version": ("GET", self._version),
            "/metrics": ("GET", self._metrics),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; other kinds of scope (lifespan, websocket) end without an answer."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        method, handler = self._routes.get(exchange.path, ("", self._unknown))
        if method not in ("", exchange.method):
            await exchange.reply(405, {"detail": "Method Not Allowed"})
            return
        try:
            await handler(exchange)
        except CallRejected as error:
            await exchange.reply(error.status, error_body(error))
        except ClientLeft:
            return

    def abort_all(self) -> None:
        """Ends every running answer as vLLM does when it is told to stop: finish reason ``abort``, then the end."""
        self._engine.abort_all()

    async def _chat(self, exchange: Exchange) -> None:
        call = self._reader.chat(await self._body(exchange, ChatBody))
        await self._generate(exchange, "chat", call)

    async def _completion(self, exchange: Exchange) -> None:
        call = self._reader.completion(await self._body(exchange, CompletionBody))
        await self._generate(exchange, "completion", call)

    async def _generate(self, exchange: Exchange, kind: Literal["chat", "completion"], call: Generation) -> None:
        wire = GenerationWire(kind, _id("chatcmpl" if kind == "chat" else "cmpl", exchange), int(time.time()), call)
        jobs = [Job(call.prompt_of(choice).tokens, answer) for choice, answer in enumerate(call.answers)]
        answer = self._stream if call.stream else self._whole
        await exchange.run_until_client_leaves(answer(exchange, wire, jobs))

    async def _stream(self, exchange: Exchange, wire: GenerationWire, jobs: list[Job]) -> None:
        await exchange.start_stream()
        with self._engine.run(jobs) as outputs:
            left = len(jobs)
            while left:
                output = await outputs.get()
                for frame in wire.frames(output):
                    await exchange.write(frame)
                left -= output.finish_reason is not None
        if wire.call.include_usage:
            await exchange.write(wire.usage_frame())
        await exchange.write(DONE, last=True)

    async def _whole(self, exchange: Exchange, wire: GenerationWire, jobs: list[Job]) -> None:
        with self._engine.run(jobs) as outputs:
            left = len(jobs)
            while left:
                output = await outputs.get()
                wire.add(output)
                left -= output.finish_reason is not None
        await exchange.reply(200, wire.body())

    async def _embeddings(self, exchange: Exchange) -> None:
        call = self._reader.embedding(await self._body(exchange, EmbeddingBody))

        async def answer() -> None:
            with self._engine.run([Job(item.tokens, None) for item in call.inputs]) as outputs:
                for _ in call.inputs:
                    await outputs.get()
            await exchange.reply(200, embedding_body(call, _id("embd", exchange), int(time.time())))

        await exchange.run_until_client_leaves(answer())

    async def _tokenize(self, exchange: Exchange) -> None:
        body = await self._body(exchange, TokenizeBody)
        self._reader.model(body.model)
        messages = body.messages or []
        pieces = pieces_of("\n".join(message.text for message in messages) if body.prompt is None else body.prompt)
        count = chat_tokens(messages, body.tools) if body.prompt is None else len(pieces)
        reply: Fields = {"count": count, "max_model_len": self._settings.context_tokens}
        reply |= {"tokens": [token_id(piece) for piece in pieces]}
        await exchange.reply(200, reply | {"token_strs": pieces if body.return_token_strs else None})

    async def _models(self, exchange: Exchange) -> None:
        rest: Fields = {"object": "model", "created": self._started_unix_s, "owned_by": "vllm"}
        rest |= {"root": self._settings.models[0], "parent": None, "max_model_len": self._settings.context_tokens}
        data = [{"id": name} | rest for name in self._settings.models]
        await exchange.reply(200, {"object": "list", "data": data})

    async def _health(self, exchange: Exchange) -> None:
        await exchange.reply(200, b"")

    async def _version(self, exchange: Exchange) -> None:
        await exchange.reply(200, {"version": VERSION})

    async def _metrics(self, exchange: Exchange) -> None:
        text = self._engine.metrics(self._settings.models[0])
        await exchange.reply(200, text, "text/plain; version=0.0.4; charset=utf-8")

    async def _unknown(self, exchange: Exchange) -> None:
        await exchange.reply(404, {"detail": "Not Found"})

    async def _body(self, exchange: Exchange, kind: type[B]) -> B:
        return parse(kind, exchange.header("content-type"), await exchange.read())


def _id(prefix: str, exchange: Exchange) -> str:
    return f"{prefix}-{exchange.header('x-request-id') or uuid4().hex[:16]}"
