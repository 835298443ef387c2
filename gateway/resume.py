"""Streams that an engine broke off go on at another one, if that is exact: docs/resume.md says when it is.

While such a stream runs, its prompt and its text are kept; nothing is, where nobody could go on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import NamedTuple

from adapters.bodies import BadBody
from adapters.continuation import (
    Rest,
    counts,
    cut_in_stop,
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
from adapters.said import Room, Said
from adapters.types import EngineFailed, GatewayRequest, Operation, StreamDecoder
from policies.types import RouteQuery

from .call import Call
from .choosing import chosen
from .endpoint import Endpoint
from .errors import GatewayError, Outcome, UpstreamFailed
from .failures import explain
from .flight import AttemptRecord, ResumeResult
from .kept import Kept
from .metrics import Metrics
from .pool import Pool
from .printable import printable
from .token_count import WITHIN_S, NotCounted, TokenCount
from .upstream.contract import TransportError

ROOM_BYTES = 64 * 1024 * 1024
WHY_CHARS = 100

Attempt = Callable[[Call, Endpoint, AttemptRecord], Awaitable[GatewayError | None]]

_OFF = "resume is off for this pool"
_ALONE = "no other endpoint of the pool is declared to have the same weights"
_NO_TIME = "the request's time is used up"
_NO_COUNT = "no engine that could go on counts tokens, and their number is limited"
_NO_RECIPE = "its engine cannot go on with such an answer exactly"


class NotResumed(Exception):
    """The answer ends where it broke off; the message says why, in words of Weir's own."""

    def __init__(self, result: ResumeResult, why: str) -> None:
        super().__init__(why)
        self.result: ResumeResult = result


class _Whole(NamedTuple):
    """What another endpoint is to go on from.

    Attributes:
        request: The client's.
        pieces: What it was given of the answer.
        each_is_one: Each of them is a token.
    """

    request: GatewayRequest
    pieces: list[str]
    each_is_one: bool

    @property
    def must_be_counted(self) -> bool:
        """Whether nobody could go on without an engine that says how many tokens there are."""
        return not self.each_is_one and is_limited(self.request)


class Resumes:
    """Keeps what it takes, within ``ROOM_BYTES``, and goes on.

    Attributes:
        room: What is kept now, prompts and texts.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.room = Room(ROOM_BYTES)
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
        call.not_kept = unfit(request) or ("" if self.room.has(len(request.raw)) else self.room.full)
        if call.not_kept:
            return decoder, None
        decoder.said = Said()
        return decoder, Kept(request._replace(body={}), decoder.said, token_a_chunk(endpoint.adapter.name))

    def keep(self, call: Call, kept: Kept) -> None:
        """The stream has begun. Nothing is kept if nobody goes on from such a beginning, or if others took the room."""
        if kept.said.unfit is not None:
            call.not_kept = kept.said.unfit
        elif not self.room.take(len(kept.request.raw)):
            call.not_kept = self.room.full
        else:
            kept.said.room = self.room
            call.kept = kept

    def forget(self, call: Call) -> None:
        """Lets go of what is kept for a call, if anything is."""
        if call.kept is not None:
            self.room.take(-len(call.kept.request.raw))
            call.kept.said.leave()
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
        result: ResumeResult = "resumed"
        failed = why = ""
        while True:
            try:
                error = await self._once_more(call, broken, query, attempt)
            except NotResumed as reason:
                result, why = "failed" if failed else reason.result, str(reason)
                break
            if error is None:
                break
            last = call.record.attempts[-1]
            query = query._replace(tried=query.tried | {last.endpoint_id})
            if last.chunks:
                broken, failed = error, ""
            else:
                failed = f"the attempt to go on failed: {error.message}"
        self._metrics.families.resumes.at(call.pool.name, result).add()
        call.record.resume, call.record.not_resumed = result, printable(why, WHY_CHARS)
        if result != "resumed":
            broken.message += f" (not resumed: {failed or why})"
            raise broken

    async def _once_more(
        self, call: Call, broken: GatewayError, query: RouteQuery, attempt: Attempt
    ) -> GatewayError | None:
        """One further attempt. Returns what it ended with, None if the stream is whole.

        Raises:
            NotResumed: There can be none.
        """
        pool, record = call.pool, call.record
        able, kept = self._able(call, broken)
        whole = _whole(kept)
        if whole.must_be_counted:
            able = [other for other in able if counts(other.adapter.name)]
            if not able:
                raise NotResumed("inexact", _NO_COUNT)
        further = _choose(pool, query, able)
        endpoint = pool.endpoints[further.endpoint_id]
        if not pool.retries.take(perf_counter()):
            raise NotResumed("budget", "the pool's retry budget is used up")
        self._metrics.retried(pool.name, broken.error_type or broken.code)
        try:
            asked = await _rest(endpoint, whole, pool.name, _left_s(call))
        except NotCounted as reason:
            return self._not_counted(call, endpoint, further, reason)
        except asyncio.CancelledError:
            _ended(call, further, "cancelled")
            raise
        further.chosen_s = perf_counter()  # counting was no part of the attempt
        # Once it is sent, the longer request is needed no more, as the client's own is not
        call.request, kept.rest = asked.request, asked._replace(request=kept.request)
        del whole, asked
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

    def _able(self, call: Call, broken: GatewayError) -> tuple[list[Endpoint], Kept]:
        """Returns the endpoints that could go on exactly, one at least, and what it takes.

        Raises:
            NotResumed: Nobody could, or may.
        """
        pool, record = call.pool, call.record
        first = pool.endpoints[record.endpoint_id]
        if not pool.config.resume:
            raise NotResumed("off", _OFF)
        equals = self._equals_of(pool, first)
        if not equals:
            raise NotResumed("no_endpoint", _ALONE)
        if broken.error_type == "total_timeout" or _left_s(call) <= 0:
            raise NotResumed("inexact", _NO_TIME)
        if broken.error_type == "engine_error_event":
            raise NotResumed("inexact", "the engine refused the request")
        able = [other for other in equals if _may(first, other, record.operation)]
        if not able:
            raise NotResumed("inexact", _NO_RECIPE)
        kept = call.kept
        if kept is None:
            raise NotResumed("inexact", call.not_kept or _NO_RECIPE)
        if kept.said.unfit is not None:
            raise NotResumed("inexact", kept.said.unfit)
        if sum(not each.lost for each in record.attempts) >= pool.config.retries.attempts:
            raise NotResumed("budget", "retries.attempts are used up")
        return able, kept

    def _not_counted(self, call: Call, endpoint: Endpoint, further: AttemptRecord, reason: NotCounted) -> GatewayError:
        """An attempt got no further than that. Only what no request could have got past is the endpoint's fault."""
        words = f"{endpoint.id} did not count the tokens given ({reason}), and their number is limited"
        error = UpstreamFailed(words, endpoint=endpoint.id, error_type="not_counted")
        _ended(call, further, error.outcome, error.error_type)
        self._metrics.attempt_failed(endpoint.id, "not_counted")
        if isinstance(reason.failure, TransportError):
            told, _ = explain(reason.failure, endpoint.id)
            call.pool.failed(endpoint, told.error_type or told.code)
        elif isinstance(reason.failure, EngineFailed):
            call.pool.refused(endpoint, reason.failure)
        return error

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


def _choose(pool: Pool, query: RouteQuery, able: list[Endpoint]) -> AttemptRecord:
    began_s = perf_counter()
    others = pool.endpoints.keys() - {endpoint.id for endpoint in able}
    further = chosen(pool, query._replace(tried=query.tried | others), began_s)
    if further is None:
        raise NotResumed("no_endpoint", "no other endpoint with the same weights takes traffic")
    further.resumes = True
    return further


def _left_s(call: Call) -> float:
    """How much of the request's time is left."""
    return call.record.received_s + call.pool.config.timeouts.total_s - perf_counter()


def _ended(call: Call, further: AttemptRecord, outcome: Outcome, error_type: str | None = None) -> None:
    """An attempt is over that had not been sent."""
    further.ended_s = perf_counter()
    further.outcome, further.error_type = outcome, error_type
    call.record.attempts.append(further)


def _whole(kept: Kept) -> _Whole:
    """Reads what was kept.

    Raises:
        NotResumed: To go on from there would not be exact.
    """
    pieces = kept.said.pieces()
    if pieces is None:
        raise NotResumed("inexact", "what had been said cannot be read")
    try:
        request = whole_again(kept.request)
    except BadBody as error:
        raise NotResumed("inexact", str(error)) from error
    if cut_in_stop(request, pieces):
        raise NotResumed("inexact", "it had broken off in what may be a stop string")
    return _Whole(request, pieces, kept.token_a_chunk and is_counted(request, pieces))


async def _rest(endpoint: Endpoint, whole: _Whole, pool: str, left_s: float) -> Rest:
    """Returns what to ask the endpoint.

    Raises:
        NotResumed: That would not be exact.
        NotCounted: It might be, but the endpoint did not say how many tokens there are.
    """
    request, pieces, each_is_one = whole
    engine, counted = endpoint.adapter.name, None
    if not each_is_one and (request.wants_usage or is_limited(request)):
        told = said_again(engine, request.operation, "".join(pieces))
        try:
            counted = await TokenCount(endpoint, pool).of_broken(pieces, told, min(WITHIN_S, left_s))
        except NotCounted:
            if whole.must_be_counted:
                raise
    made = rest(engine, request, pieces, counted)
    if isinstance(made, str):
        raise NotResumed("inexact", made)
    return made._replace(estimated=False) if each_is_one else made
