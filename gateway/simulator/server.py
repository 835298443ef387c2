"""The simulated engine as an ASGI application: one dialect's routes over one batch."""

from __future__ import annotations

import time
from uuid import uuid4

from starlette.types import Receive, Scope, Send

from gateway.simulator.bodies import CallRejected
from gateway.simulator.dialects import DIALECTS
from gateway.simulator.dialects.protocol import Asked, Embeds, Generates, Page, Reply, Request, Route, State
from gateway.simulator.engine import Engine, Job, Run
from gateway.simulator.exchange import ClientLeft, Exchange
from gateway.simulator.metrics_text import EngineCounts
from gateway.simulator.settings import Settings

__all__ = ["Settings", "SimulatedEngine"]


class SimulatedEngine:
    """An ASGI application. Serve it in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started_unix_s = int(time.time())
        self._dialect = DIALECTS[settings.dialect]
        self._routes = self._dialect.routes()
        self._counts = EngineCounts(self._dialect.edges_s)
        self._engine = Engine(settings.pace, settings.seed, self._counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; other kinds of scope (lifespan, websocket) end without an answer."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self._dialect.headers)
        path = exchange.path
        route = self._routes.get(f"{exchange.method} {path}") or self._routes.get(path)
        if route is None or exchange.method not in _methods(route):
            await exchange.reply(self._dialect.missing(exchange.method, path, known=route is not None))
            return
        try:
            await self._serve(exchange, route)
        except CallRejected as error:
            self._counts.refused += 1
            self._counts.overloaded += error.kind == "overload"
            await self._refuse(exchange, error)
        except ClientLeft:
            return

    @property
    def open_requests(self) -> int:
        """How many run or wait now."""
        return self._engine.batch.running + self._engine.batch.waiting

    def abort_all(self) -> None:
        """Ends every running answer as the engine does when it is told to stop."""
        self._engine.abort_all()

    async def _serve(self, exchange: Exchange, route: Route) -> None:
        request = Request(
            path=exchange.path,
            query=exchange.query,
            content_type=exchange.header("content-type"),
            body=await exchange.read(),
            client_id=exchange.header("x-request-id"),
            random_id=uuid4().hex,
            received_unix_s=int(time.time()),
        )
        match route:
            case Page():
                await exchange.reply(route.answer(request, self._state()))
            case Embeds():
                self._counts.requests += 1
                vectors = route.read(request, self._state())
                jobs = [Job(item.tokens, None) for item in vectors.call.inputs]
                await exchange.run_until_client_leaves(self._embed(exchange, vectors.reply, jobs))
            case Generates():
                self._counts.requests += 1
                asked = route.read(request, self._state())
                if isinstance(asked, Reply):
                    await exchange.reply(asked)
                    return
                call = asked.call
                self._check_queue(streaming=call.stream)
                jobs = [Job(call.prompt_of(choice).tokens, answer) for choice, answer in enumerate(call.answers)]
                answer = self._stream if call.stream else self._whole
                await exchange.run_until_client_leaves(answer(exchange, asked, jobs))

    async def _stream(self, exchange: Exchange, asked: Asked, jobs: list[Job]) -> None:
        dialect, wire = self._dialect, asked.wire
        with self._engine.run(jobs) as run:
            if dialect.stream_start == "with_slot":
                await run.admitted.wait()
            elif dialect.stream_start == "with_first_token":
                await run.speaking.wait()
            await exchange.start_stream(wire.media_type, dialect.stream_headers, closes=dialect.closes_streams)
            left = len(jobs)
            while left:
                output = await run.outputs.get()
                for frame in wire.frames(output):
                    await exchange.write(frame)
                left -= output.finish_reason is not None
        await exchange.write(b"".join(wire.end()), last=True)

    async def _whole(self, exchange: Exchange, asked: Asked, jobs: list[Job]) -> None:
        with self._engine.run(jobs) as run:
            left = len(jobs)
            while left:
                output = await run.outputs.get()
                asked.wire.add(output)
                left -= output.finish_reason is not None
        await exchange.reply(asked.wire.reply())

    async def _embed(self, exchange: Exchange, reply: Reply, jobs: list[Job]) -> None:
        with self._engine.run(jobs) as run:
            await _drain(run, len(jobs))
        await exchange.reply(reply)

    async def _refuse(self, exchange: Exchange, error: CallRejected) -> None:
        said = self._dialect.stream_refusal(error, exchange.path) if error.streaming else None
        if said is None:
            await exchange.reply(self._dialect.refusal(error, exchange.path))
            return
        await exchange.reply_as_stream(said, self._dialect.stream_headers)

    def _check_queue(self, *, streaming: bool) -> None:
        limit, batch = self._settings.max_queue, self._engine.batch
        if limit is not None and batch.running >= self._settings.pace.slots and batch.waiting >= limit:
            raise CallRejected("The request queue is full.", None, "overload", streaming=streaming)

    def _state(self) -> State:
        batch = self._engine.batch
        return State(
            settings=self._settings,
            started_unix_s=self._started_unix_s,
            running=batch.running,
            waiting=batch.waiting,
            cached_tokens=batch.cached_tokens,
            kv_tokens=self._settings.pace.slots * self._settings.context_tokens,
            promised_tokens=batch.promised_tokens,
            counts=self._counts,
        )


def _methods(route: Route) -> tuple[str, ...]:
    return route.methods if isinstance(route, Page) else ("POST",)


async def _drain(run: Run, jobs: int) -> None:
    for _ in range(jobs):
        await run.outputs.get()
