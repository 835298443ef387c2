"""One request, from admission to its last byte. Read this file first.

Before the first output: try, and try elsewhere. After it: relay to the end, go on elsewhere where that is exact
(``resume``), or say that it broke. A second answer is never glued to a first.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import Any, NoReturn

from adapters.capabilities import Capabilities, needed
from adapters.joined_stream import NotJoined
from adapters.types import Adapter, AdapterError, Answer, GatewayRequest, MalformedStream
from policies.hedging import Withheld, has_room, late_after_s
from policies.retry import wait_s
from policies.retry_after import retry_after_s
from policies.types import RouteQuery

from .call import Call
from .choosing import chosen
from .client_link import HeaderBlock
from .content import CapturingDecoder, Content, answer_of, prompt_of
from .deadlines import Deadlines
from .embedding_batcher import EmbeddingBatcher
from .endpoint import Endpoint
from .errors import GatewayError, NoCapable, NoEndpoint
from .failures import AttemptFailure, broken_off, explain
from .flight import AttemptRecord
from .hedging import Race
from .keepalive import KeepAlive
from .kept import Kept
from .lessons import answered, learn_waits
from .metrics import Metrics
from .pool import Pool
from .relay import Relay, TimedOut
from .resume import Resumes
from .route_signals import SILENT
from .timing import server_timing, timing_comment
from .trace_context import context_headers
from .upstream.contract import ResponseHead, TransportError

DONE = b"data: [DONE]\n\n"
UNBUFFERED = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
HEDGED = frozenset(("chat", "text_completion"))
NO_BODY = frozenset((204, 205, 304))
STREAM_HEADERS = b"content-type: text/event-stream; charset=utf-8\r\n" + UNBUFFERED


class Proxy:
    """Serves calls."""

    def __init__(self, metrics: Metrics, keepalive_s: float, stall_s: float) -> None:
        self._metrics = metrics
        self._keepalive_s = keepalive_s
        self._stall_s = stall_s
        self._deadlines = Deadlines()
        self._batcher = EmbeddingBatcher(metrics, self._deadlines)
        self._resumes = Resumes(metrics)

    async def serve(self, call: Call) -> None:
        """Answers the call.

        Raises:
            GatewayError: It could not be answered, or (``call.committed``) not to its end.
        """
        call.record.queued_s = call.record.admitted_s = perf_counter()
        call.pool.in_flight += 1
        if call.pool.config.capture.prompts:
            call.record.content = Content(prompt_of(call.request.raw, call.pool.config.capture))
        if call.request.stream and self._keepalive_s > 0 and call.request.operation != "other":
            call.keepalive = KeepAlive(call.record, call.link, self._keepalive_s, STREAM_HEADERS)
            self._deadlines.add(call.keepalive)
        try:
            await self._try_endpoints(call)
            call.record.outcome = "ok"
        finally:
            self._resumes.forget(call)
            call.pool.in_flight -= 1
            if call.keepalive is not None:
                self._deadlines.discard(call.keepalive)

    async def _try_endpoints(self, call: Call) -> None:
        pool, record = call.pool, call.record
        pool.retries.request(record.received_s)
        tried: frozenset[str] = frozenset()
        unasked = 0  # of them, those whose engines cannot do it
        told: GatewayError | None = None  # by one that was asked
        needs = needed(call.request)
        began_s = perf_counter()
        call.prompt, call.query = await pool.prompts.read(call.request, needs)
        if call.signals is not SILENT:
            session, headers, model = call.signals
            call.query = call.query._replace(session=session, headers=headers, model=model)
        attempt = chosen(pool, call.query, began_s)
        if attempt is None:
            raise _no_choice(pool, call.request, needs)
        while True:
            tried |= {attempt.endpoint_id}
            late_s = None if pool.hedges is None else _late_after_s(call, attempt)
            if late_s is None:
                error = await self._attempt(call, pool.endpoints[attempt.endpoint_id], attempt)
            else:
                error = await self._race(call, attempt, call.query._replace(tried=tried), late_s)
                # One that lost to another has not failed
                tried = frozenset([each.endpoint_id for each in record.attempts if not each.lost])
            if error is None:
                return
            if call.committed and call.request.stream and not call.opaque:
                await self._resumes.go_on(call, error, call.query._replace(tried=tried), self._attempt)
                return
            if error.elsewhere:
                unasked += 1
            else:
                told = error
            made = len(tried) - unasked
            if not (error.retryable or error.elsewhere) or call.committed or made >= pool.config.retries.attempts:
                raise told or error
            attempt = chosen(pool, call.query._replace(tried=tried), perf_counter())
            if attempt is None or not (error.elsewhere or pool.retries.take(perf_counter())):
                raise told or error
            self._metrics.retried(pool.name, error.error_type or error.code)
            # Neither a refused connection nor an engine that lacks something tells anything about the next endpoint
            if error.error_type != "connect" and not error.elsewhere:
                await asyncio.sleep(wait_s(made + 1, random.random()))
                attempt = chosen(pool, call.query._replace(tried=tried), perf_counter())  # things may have changed
                if attempt is None:
                    raise error

    async def _race(
        self, call: Call, first: AttemptRecord, elsewhere: RouteQuery, late_s: float
    ) -> GatewayError | None:
        """Tries one endpoint and, if it has given no output after so long, another one beside it."""
        pool, race = call.pool, Race()
        tries = self._attempt(call, pool.endpoints[first.endpoint_id], first, race)
        try:
            return await race.run(tries, partial(self._second, call, elsewhere, race), late_s)
        finally:
            if race.result is not None:
                self._metrics.hedged(pool.name, race.result)

    def _second(self, call: Call, elsewhere: RouteQuery, race: Race) -> Coroutine[Any, Any, GatewayError | None] | None:
        """Returns the second attempt of a race, or None if there is to be none."""
        pool = call.pool
        attempt = chosen(pool, elsewhere, perf_counter())
        withheld = _withheld(pool, attempt)
        if attempt is None or withheld is not None:
            self._metrics.hedge_withheld(pool.name, withheld or "busy")
            return None
        attempt.role = "hedge"
        return self._attempt(call, pool.endpoints[attempt.endpoint_id], attempt, race)

    async def _attempt(
        self, call: Call, endpoint: Endpoint, attempt: AttemptRecord, race: Race | None = None
    ) -> GatewayError | None:
        """Tries one endpoint. Returns what the client is told if nobody else can do it, None if it is done."""
        pool, record = call.pool, call.record
        record.attempts.append(attempt)
        gaps = self._metrics.endpoint(pool.name, record.model, endpoint.id, attempt.role).gaps
        tokens = call.query.prompt_tokens
        lease = endpoint.own.lease(tokens, tokens - call.query.cached_tokens.get(endpoint.id, 0), attempt.chosen_s)
        relay = Relay(
            record,
            attempt,
            call.link,
            pool.config.timeouts,
            gaps,
            self._deadlines,
            self._stall_s,
            lease,
            pool.usual.limits(record.stream, call.query.prompt_tokens) if pool.usual and pool.learns_limits else None,
        )
        if race is not None:
            race.enter(attempt, relay)
        try:
            with lease:
                attempt.engine, attempt.load = endpoint.adapter.name, endpoint.load
                attempt.in_flight = len(endpoint.own.open)
                await self._exchange(call, endpoint, attempt, relay)
        except (AdapterError, TransportError, TimedOut) as failure:
            error = self._failed(call, endpoint, attempt, relay, failure)
            attempt.outcome, attempt.error_type = error.outcome, error.error_type
            if error.error_type is not None:
                self._metrics.attempt_failed(endpoint.id, error.error_type)
            return error
        except asyncio.CancelledError:
            attempt.outcome = "cancelled"
            raise
        finally:
            relay.close()
            attempt.ended_s = perf_counter()
            if race is not None:
                race.leave(relay)
            if pool.usual is not None:
                learn_waits(pool.usual, attempt, record, tokens)
        sample = answered(attempt, record)
        lease.served(sample)
        if sample is not None:
            if not attempt.resumes:  # that prompt was not the client's own
                pool.prompts.answered(call.prompt, endpoint.id, sample)
            if attempt.timings is not None:
                endpoint.answered(attempt.timings)
        pool.succeeded(endpoint)
        return None

    def _failed(
        self, call: Call, endpoint: Endpoint, attempt: AttemptRecord, relay: Relay, failure: AttemptFailure
    ) -> GatewayError:
        """Tells the fleet whose fault it was, and returns what the client is told."""
        own_path, own_credential = call.request.operation != "other", call.pool.shows_own_credential(endpoint)
        error, whose = explain(failure, endpoint.id, own_path=own_path, own_credential=own_credential)
        if call.committed and not call.opaque and attempt.first_output_s is not None:
            error = broken_off(failure, endpoint.id)
            whose = "client" if error.error_type == "total_timeout" or isinstance(failure, NotJoined) else "engine"
        if whose == "busy":
            self._busy(call, endpoint, relay, error)
        if call.follows:
            call.follows = False
        elif whose == "engine":
            call.pool.failed(endpoint, error.error_type or error.code)
            if call.pool.hedges is not None:
                call.pool.hedges.failed(perf_counter())
        elif whose == "credential":
            call.pool.refused_credential(endpoint)
        elif whose == "busy":
            call.pool.refused(endpoint, failure)
        elif error.error_type == "total_timeout" and endpoint.health.on_trial and attempt.head_s is None:
            call.pool.failed(endpoint, error.error_type)  # or else the next request is its trial, and fares no better
        return error

    def _busy(self, call: Call, endpoint: Endpoint, relay: Relay, error: GatewayError) -> None:
        told = relay.head.get(b"retry-after") if relay.head else None
        asked_s = None if told is None else retry_after_s(told.decode("latin-1"), time.time())
        error.retry_after_s = call.pool.busy(endpoint, asked_s, call.busy_s)
        if asked_s is not None:
            call.busy_s = asked_s if call.busy_s is None else min(call.busy_s, asked_s)

    async def _exchange(self, call: Call, endpoint: Endpoint, attempt: AttemptRecord, relay: Relay) -> None:
        request, adapter = call.request, endpoint.adapter
        if request.operation == "embeddings":
            share = await self._batcher.share(call, endpoint, attempt, relay)
            if share is not None:
                self._respond(call, share.answer, share.dropped, attempt)
                await call.link.drained()
                attempt.outcome = "ok"
                return
        path, body, streamed, dropped = adapter.encode(request, endpoint.config.model or call.pool.name)
        call.pool.prompts.sent(call.prompt, endpoint.id)
        wire = endpoint.wire(request.method, path, body, (*call.headers, *context_headers(call.record, attempt)))
        exchange = await endpoint.upstream.send(wire, relay, connect_timeout_s=call.pool.config.timeouts.connect_s)
        del wire, body  # a prompt is not kept for as long as its answer runs
        relay.sent(exchange, stream=streamed and request.operation != "other")
        if request.stream and request.operation != "other":
            del request  # nor here
            await self._stream(call, relay, adapter, dropped, attempt)
        else:
            head = await relay.head_came()
            if not 200 <= head.status < 300:
                raise adapter.read_error(head.status, await relay.body())
            if request.operation == "other":
                await self._pass_on(call, relay, head, attempt)
            else:
                relay.collect(adapter.answer_reader(request, head, streamed=streamed))
                self._respond(call, await relay.answer(), dropped, attempt)
                await call.link.drained()
        attempt.outcome = "ok"

    async def _stream(
        self, call: Call, relay: Relay, adapter: Adapter, dropped: tuple[str, ...], attempt: AttemptRecord
    ) -> None:
        record, link = call.record, call.link
        endpoint = call.pool.endpoints[attempt.endpoint_id]
        decoder, kept = self._resumes.listen(call, endpoint, adapter.stream_decoder(call.request))
        if kept is not None:
            relay.keep(kept.said)
        commit = partial(self._commit, call, relay, dropped, attempt, kept)
        begun = (record.content.answer or "") if record.content is not None and call.committed else ""
        capture = call.pool.config.capture
        capturing = CapturingDecoder(decoder, capture) if capture.answers else None
        try:
            last = await relay.stream(capturing or decoder, adapter.stream_type, commit)
        finally:
            if capturing is not None and not attempt.lost:
                answer = (begun + capturing.answer())[: capture.max_chars]
                record.content = (record.content or Content())._replace(answer=answer)
        if last is None:
            await self._read_no_stream(call.request, relay, adapter)
        now_s = perf_counter()
        link.finish(
            last + timing_comment(record, attempt, now_s) + DONE,
            b"server-timing: %b\r\n" % server_timing(record, attempt, now_s) if call.trailers else b"",
        )
        await link.drained()

    def _commit(
        self, call: Call, relay: Relay, dropped: tuple[str, ...], attempt: AttemptRecord, kept: Kept | None
    ) -> None:
        """Sends the head of a stream; from here on nobody can begin it anew. One that goes on has its head."""
        if call.keepalive is not None:
            call.keepalive.relay = relay
        call.request = call.request.without_body()
        if call.committed and call.kept is not None:
            call.kept.live = True
            return
        call.committed = True
        if kept is not None:
            self._resumes.keep(call, kept)
        call.record.status = 200
        if call.link.started:
            call.trailers = False  # a keep-alive sent the head, without announcing them
        else:
            call.trailers = call.trailers and call.link.takes_trailers
            headers = STREAM_HEADERS + self._headers(call, dropped, attempt)
            call.link.start(200, headers + b"trailer: server-timing\r\n" if call.trailers else headers)

    async def _read_no_stream(self, request: GatewayRequest, relay: Relay, adapter: Adapter) -> NoReturn:
        """Reads what came instead of a stream; raises the engine's error, whatever its status."""
        head = await relay.head_came()
        if not 200 <= head.status < 300:
            raise adapter.read_error(head.status, await relay.body())
        relay.collect(adapter.answer_reader(request, head, streamed=True))
        await relay.answer()
        raise MalformedStream("the engine answered a request for a stream without one")

    def _respond(self, call: Call, answer: Answer, dropped: tuple[str, ...], attempt: AttemptRecord) -> None:
        call.committed = True
        record = call.record
        record.status = 200
        record.usage = answer.usage
        attempt.timings = answer.timings
        if record.caller is not None:
            attempt.answer = answer.facts()
        record.bytes_out = len(answer.body)
        capture = call.pool.config.capture
        if capture.answers and call.request.operation != "embeddings":
            record.content = (record.content or Content())._replace(answer=answer_of(answer.body, capture))
        headers = b"content-type: application/json\r\n" + self._headers(call, dropped, attempt)
        call.link.respond(200, headers, answer.body)

    async def _pass_on(self, call: Call, relay: Relay, head: ResponseHead, attempt: AttemptRecord) -> None:
        """Another ``/v1`` path of the engine: its bytes, as they come."""
        call.committed = call.opaque = True
        call.record.status = head.status
        content_type = head.get(b"content-type")
        headers = self._headers(call, (), attempt)
        if content_type is not None:
            headers += b"content-type: %b\r\n" % content_type
        if b"event-stream" in (content_type or b""):
            headers += UNBUFFERED
        if head.status in NO_BODY:
            call.link.respond(head.status, headers, b"")
            await call.link.drained()
            return
        call.link.start(head.status, headers)
        first = relay.pass_on()
        if first:
            call.link.write(first)
        await relay.whole()
        call.link.finish()
        await call.link.drained()

    def _headers(self, call: Call, dropped: tuple[str, ...], attempt: AttemptRecord) -> HeaderBlock:
        headers = b"x-weir-endpoint: %b\r\nx-weir-attempts: %d\r\nserver-timing: %b\r\n" % (
            attempt.endpoint_id.encode("ascii"),
            len(call.record.attempts),
            server_timing(call.record, attempt, perf_counter()),
        )
        if dropped:
            headers += b"x-weir-dropped-params: %b\r\n" % ", ".join(dropped).encode("ascii")
        return headers


def _late_after_s(call: Call, first: AttemptRecord) -> float | None:
    """Counts a request of a pool that hedges; returns after how long without an output it is late, None for never.

    A stream that tries an endpoint is never: if others answered its trials, one that hangs would stay on trial.
    """
    pool = call.pool
    hedges, usual = pool.hedges, pool.usual
    if hedges is None or usual is None or call.record.attempts or call.request.operation not in HEDGED:
        return None
    hedges.request(perf_counter())
    if call.record.stream and pool.endpoints[first.endpoint_id].health.on_trial:
        return None
    return late_after_s(usual.first_outputs(call.record.stream, call.query.prompt_tokens), hedges.rules)


def _withheld(pool: Pool, second: AttemptRecord | None) -> Withheld | None:
    """Counts a second attempt; returns why there is to be none."""
    assert pool.hedges is not None
    view = pool.view()
    room = second is not None and has_room(pool.endpoints[second.endpoint_id].snapshot(), view)
    return pool.hedges.take(view.now_s, room=room)


def _no_choice(pool: Pool, request: GatewayRequest, needs: Capabilities) -> GatewayError:
    """Why the request cannot even begin: the client's own doing, or something that passes."""
    if needs and (refusal := pool.refusal(request, needs)) is not None:
        return NoCapable(refusal.message, param=refusal.param)
    able = " that can do what the request asks for" if needs else ""
    return NoEndpoint(
        f"no endpoint of {pool.name}{able} takes traffic now ({pool.states()}); GET /weir/endpoints tells why",
        retry_after_s="1",
    )
