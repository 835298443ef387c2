"""Streams that an engine broke off go on at another one, if that is exact: docs/resume.md says when it is.

While such a stream runs, its prompt and its text are kept; nothing is, where nobody could go on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from adapters.bodies import BadBody
from adapters.continuation import (
    Rest,
    goes_on,
    is_counted,
    is_limited,
    rest,
    said_again,
    token_a_chunk,
    unfit,
    whole_again,
)
from adapters.joined_stream import JoinedStream
from adapters.openai_stream import OpenAiStream
from adapters.said import Said
from adapters.types import GatewayRequest, Operation, StreamDecoder
from policies.types import RouteQuery

from .choosing import chosen
from .endpoint import Endpoint
from .errors import GatewayError
from .flight import AttemptRecord
from .metrics import Metrics
from .pool import Pool
from .token_count import TokenCount

if TYPE_CHECKING:
    from .proxy import Call

ROOM_BYTES = 64 * 1024 * 1024

Result = Literal["resumed", "failed", "inexact", "no_endpoint", "budget", "off"]
Attempt = Callable[["Call", Endpoint, AttemptRecord], Awaitable[GatewayError | None]]

_OFF = "resume is off for this pool"
_ALONE = "no other endpoint of the pool is declared to have the same weights"
_NO_RECIPE = "its engine cannot go on with such an answer exactly"
_NO_ROOM = f"{ROOM_BYTES >> 20} MiB of other open requests are kept already"


@dataclass(slots=True)
class Kept:
    """What it takes to go on with a stream.

    Attributes:
        request: The client's, with its bytes and without the parsed body.
        said: What the client has been given.
        token_a_chunk: Whether each piece of that was a token.
        rest: What the attempt that goes on asks for; None while the first one runs.
        joined: Joins its answer to what was said.
        live: Something of its answer went to the client.
    """

    request: GatewayRequest
    said: Said
    token_a_chunk: bool
    rest: Rest | None = None
    joined: JoinedStream | None = None
    live: bool = False


class NotResumed(Exception):
    """The answer ends where it broke off; the message says why."""

    def __init__(self, result: Result, why: str) -> None:
        super().__init__(why)
        self.result: Result = result


class NotCounted(NotResumed):
    """The endpoint that was to go on did not say how many tokens had been given."""

    def __init__(self, why: str) -> None:
        super().__init__("inexact", why)


class Resumes:
    """Keeps what it takes, within ``ROOM_BYTES``, and goes on.

    Attributes:
        kept_bytes: Of the prompts that are kept now.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.kept_bytes = 0
        self._metrics = metrics
        self._equals: dict[str, tuple[Endpoint, ...]] = {}

    # --- while a stream runs

    def listen(self, call: Call, endpoint: Endpoint, decoder: StreamDecoder) -> tuple[StreamDecoder, Kept | None]:
        """Returns what decodes a stream that begins, and what is to be kept once it has begun, if another may go on."""
        if (kept := call.kept) is not None and kept.rest is not None:
            assert isinstance(decoder, OpenAiStream)
            kept.joined = JoinedStream(decoder, kept.rest, kept.said)
            kept.token_a_chunk = kept.token_a_chunk and token_a_chunk(endpoint.adapter.name)
            return kept.joined, None
        equals = self._equals_of(call.pool, endpoint) if call.pool.config.resume else ()
        if not equals or not isinstance(decoder, OpenAiStream):
            return decoder, None
        request = call.request
        if not any(_may(endpoint, other, request.operation) for other in equals):
            return decoder, None
        call.not_kept = unfit(request) or ("" if self.kept_bytes + len(request.raw) <= ROOM_BYTES else _NO_ROOM)
        if call.not_kept:
            return decoder, None
        decoder.said = Said()
        return decoder, Kept(request._replace(body={}), decoder.said, token_a_chunk(endpoint.adapter.name))

    def keep(self, call: Call, kept: Kept) -> None:
        """The stream has begun. Nothing is kept if others that began since ``listen`` have taken the room."""
        if self.kept_bytes + len(kept.request.raw) > ROOM_BYTES:
            call.not_kept = _NO_ROOM
            return
        self.kept_bytes += len(kept.request.raw)
        call.kept = kept

    def forget(self, call: Call) -> None:
        """Lets go of what is kept for a call, if anything is."""
        if call.kept is not None:
            self.kept_bytes -= len(call.kept.request.raw)
            call.kept = None

    # --- when it has broken off

    async def go_on(self, call: Call, broken: GatewayError, query: RouteQuery, attempt: Attempt) -> None:
        """Brings a stream that broke off to its end.

        Args:
            call: Committed, and its last attempt over.
            broken: What that ended with.
            query: What is known of the request, ``tried`` included.
            attempt: Tries an endpoint.

        Raises:
            GatewayError: It stays broken off; the message says why.
        """
        result: Result = "resumed"
        why = ""
        while True:
            try:
                error = await self._once_more(call, broken, query, attempt)
            except NotResumed as reason:
                result, why = ("failed", why) if why else (reason.result, str(reason))
                break
            if error is None:
                break
            last = call.record.attempts[-1]
            query = query._replace(tried=query.tried | {last.endpoint_id})
            if last.chunks:
                broken, why = error, ""
            else:
                why = f"the attempt to go on failed: {error.message}"
        self._metrics.resumes.at(call.pool.name, result).add()
        if result != "resumed":
            broken.message += f" (not resumed: {why})"
            raise broken

    async def _once_more(
        self, call: Call, broken: GatewayError, query: RouteQuery, attempt: Attempt
    ) -> GatewayError | None:
        """One further attempt. Returns what it ended with, None if the stream is whole.

        Raises:
            NotResumed: There can be none.
        """
        pool, record = call.pool, call.record
        further = self._choose(call, broken, query)
        endpoint, kept = pool.endpoints[further.endpoint_id], call.kept
        assert kept is not None
        try:
            asked = await _rest(endpoint, kept, pool.name)
        except (NotCounted, asyncio.CancelledError) as reason:  # an attempt that got no further than that
            further.ended_s = perf_counter()
            further.outcome = "upstream_error" if isinstance(reason, NotCounted) else "cancelled"
            further.error_type = "not_counted" if isinstance(reason, NotCounted) else None
            record.attempts.append(further)
            raise
        further.chosen_s = perf_counter()  # counting was no attempt yet
        if not pool.retries.take(perf_counter()):
            raise NotResumed("budget", "the pool's retry budget is used up")
        self._metrics.retried(pool.name, broken.error_type or broken.code)
        # Once it is sent, the longer request is needed no more, as the client's own is not
        call.request, kept.rest = asked.request, asked._replace(request=kept.request)
        kept.live, kept.joined = False, None
        before, record.usage = record.usage, None
        try:
            return await attempt(call, endpoint, further)
        finally:
            joined: JoinedStream | None = kept.joined
            if joined is not None and kept.live:
                record.usage = joined.joined_tokens()
            else:
                record.usage = before
                if joined is not None:
                    joined.forget()

    def _choose(self, call: Call, broken: GatewayError, query: RouteQuery) -> AttemptRecord:
        pool, record = call.pool, call.record
        first = pool.endpoints[record.endpoint_id]
        if not pool.config.resume:
            raise NotResumed("off", _OFF)
        equals = self._equals_of(pool, first)
        if not equals:
            raise NotResumed("no_endpoint", _ALONE)
        if broken.error_type == "total_timeout":
            raise NotResumed("inexact", "the request's time is used up")
        if broken.error_type == "engine_error_event":
            raise NotResumed("inexact", "the engine refused the request")
        able = {other.id for other in equals if _may(first, other, record.operation)}
        if not able:
            raise NotResumed("inexact", _NO_RECIPE)
        kept = call.kept
        if kept is None:
            raise NotResumed("inexact", call.not_kept or _NO_RECIPE)
        if kept.said.unfit is not None:
            raise NotResumed("inexact", kept.said.unfit)
        if sum(not each.lost for each in record.attempts) >= pool.config.retries.attempts:
            raise NotResumed("budget", "retries.attempts are used up")
        began_s = perf_counter()
        others = frozenset(id for id in pool.endpoints if id not in able)
        further = chosen(pool, query._replace(tried=query.tried | others), began_s)
        if further is None:
            raise NotResumed("no_endpoint", "no other endpoint with the same weights takes traffic")
        further.resumes = True
        return further

    def _equals_of(self, pool: Pool, endpoint: Endpoint) -> tuple[Endpoint, ...]:
        """The other endpoints that the configuration says have the same model in the same precision."""
        equals = self._equals.get(endpoint.id)
        if equals is None:
            others = [other for other in pool.endpoints.values() if other is not endpoint]
            equals = self._equals[endpoint.id] = tuple([other for other in others if _equal(endpoint, other)])
        return equals


def _equal(one: Endpoint, other: Endpoint) -> bool:
    """By their labels; without any, by the engine's own name of the model, and then the engines must be the same."""
    if one.config.weights is not None or other.config.weights is not None:
        return one.config.weights == other.config.weights
    return one.config.model is not None and one.config.model == other.config.model


def _may(one: Endpoint, other: Endpoint, operation: Operation) -> bool:
    """Whether ``other``, of equal weights as far as the configuration says, can go on with an answer of ``one``'s."""
    labelled = one.config.weights is not None
    return goes_on(other.adapter.name, operation) and (labelled or one.adapter.name == other.adapter.name)


async def _rest(endpoint: Endpoint, kept: Kept, pool: str) -> Rest:
    """Returns what to ask the endpoint.

    Raises:
        NotResumed: That would not be exact.
    """
    pieces = kept.said.pieces()
    if pieces is None:
        raise NotResumed("inexact", "what had been said cannot be read")
    try:
        request = whole_again(kept.request)
    except BadBody as error:
        raise NotResumed("inexact", str(error)) from error
    engine, counted = endpoint.adapter.name, None
    each_is_one = kept.token_a_chunk and is_counted(request, pieces)
    if not each_is_one and (request.wants_usage or is_limited(request)):
        told = said_again(engine, request.operation, "".join(pieces))
        counted = await TokenCount(endpoint, pool).of_broken(pieces, told)
        if counted is None and is_limited(request):
            raise NotCounted(f"{endpoint.id} did not count the tokens given, and their number is limited")
    made = rest(engine, request, pieces, counted)
    if isinstance(made, str):
        raise NotResumed("inexact", made)
    return made._replace(estimated=False) if each_is_one else made
