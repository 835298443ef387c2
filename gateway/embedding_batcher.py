"""Gathers small embedding requests and sends them to an engine as one. Off unless the pool asks for it.

A request waits here once its endpoint is chosen, for the first attempt only. It comes back with its share of the
joined answer, with the failure of the joined attempt, or with nothing: then it goes on alone, as if it had not waited.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import reduce
from math import inf
from time import perf_counter
from typing import NamedTuple

from adapters.joined_embeddings import CannotSplit, Inputs, join, read_inputs, split
from adapters.types import Answer, EngineFailed
from policies.embedding_batch import BatchRules, Extent

from .call import Call
from .deadlines import Deadlines
from .endpoint import Endpoint
from .flight import AttemptRecord
from .frames import let_go
from .metrics import Metrics
from .relay import Relay, TimedOut
from .trace_context import context_headers, new_span_id
from .upstream.contract import ResponseHead

log = logging.getLogger("weir.embeddings")

# What an engine says to a request at whose faults the others may have no part; llama.cpp says 500 to a large input.
_REFUSED = frozenset((400, 413, 422, 500))
# Of one request: what else differs, as a credential that is passed on, keeps requests apart.
_OWN_HEADER = b"x-request-id"


class Share(NamedTuple):
    """One client's part of a joined answer, and the request fields that the engine cannot take."""

    answer: Answer
    dropped: tuple[str, ...]


class _Key(NamedTuple):
    """What the requests of one batch have in common."""

    endpoint_id: str
    kind: str
    rest: bytes
    headers: tuple[tuple[bytes, bytes], ...]


class _Member:
    """One request of a batch; implements ``deadlines.Watched`` for its own total time."""

    __slots__ = ("attempt", "call", "due_s", "extent", "inputs", "outcome")

    def __init__(self, call: Call, attempt: AttemptRecord, inputs: Inputs, extent: Extent) -> None:
        self.call = call
        self.attempt = attempt
        self.inputs = inputs
        self.extent = extent
        self.outcome: asyncio.Future[Share | None] = asyncio.get_running_loop().create_future()
        self.due_s = call.record.received_s + call.pool.config.timeouts.total_s

    def done(self, share: Share | None) -> None:
        """Ends the wait with a share of the answer, or with None: to be sent alone."""
        if not self.outcome.done():
            self.outcome.set_result(share)

    def failed(self, failure: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(failure)

    def on_due(self, now_s: float) -> None:
        self.due_s = inf
        self.failed(TimedOut("total", self.call.pool.config.timeouts.total_s))


class _Batch:
    """Requests that wait for each other or, once they are sent, for their answer.

    Attributes:
        members: Those whose clients are still there.
        attempt: The marks of the joined attempt.
        head: The head of its answer, once that is over.
        speaker: Trace and span id of the member's attempt that the engine is told of; of two traces it can join one.
        timer: Sends the batch; None once it waits no longer.
        task: Serves it; None before, and for one request that goes on alone.
    """

    def __init__(self, key: _Key, endpoint: Endpoint, first: _Member) -> None:
        self.key = key
        self.endpoint = endpoint
        self.members = [first]
        self.attempt = AttemptRecord(endpoint.id, "", 0.0)
        self.head: ResponseHead | None = None
        self.speaker: tuple[str, str] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def extent(self) -> Extent:
        """The size of all members together; there is at least one."""
        return reduce(Extent.plus, [member.extent for member in self.members])

    def tell(self, call: Call, attempt: AttemptRecord) -> None:
        """Writes what became of the joined attempt into a member's own. The wait for it was no attempt yet."""
        joined = self.attempt
        call.record.admitted_s = attempt.chosen_s = joined.chosen_s
        attempt.connected_s, attempt.sent_s = joined.connected_s, joined.sent_s
        attempt.head_s, attempt.first_byte_s, attempt.status = joined.head_s, joined.first_byte_s, joined.status
        attempt.reused = joined.reused or call.follows  # a new connection is counted once
        if self.speaker is not None and self.speaker[1] != attempt.span_id:
            attempt.joined = self.speaker


class EmbeddingBatcher:
    """Batches of all pools."""

    def __init__(self, metrics: Metrics, deadlines: Deadlines) -> None:
        self._metrics = metrics
        self._deadlines = deadlines
        self._waiting: dict[_Key, list[_Batch]] = {}
        self._warned: set[str] = set()

    async def share(self, call: Call, endpoint: Endpoint, attempt: AttemptRecord, relay: Relay) -> Share | None:
        """Sends the request together with others, if there are any that it may be joined with.

        Args:
            call: An embeddings request.
            endpoint: Where it goes to.
            attempt: Its attempt there; gets the marks of the joined one.
            relay: The attempt's own; gets the head of the joined answer.

        Returns:
            Its share of the answer; None if it is to be sent alone.

        Raises:
            AdapterError, TransportError, TimedOut: The joined attempt failed.
        """
        config = call.pool.config.embeddings_batch
        if not config.inputs or len(call.record.attempts) > 1:  # one that failed in company is not to fail others again
            return None
        rules = BatchRules(config.inputs, config.tokens)
        inputs = read_inputs(call.request)
        if inputs is None:
            return None
        extent = Extent.of(inputs.tokens)
        if not rules.may_wait(extent, len(call.request.raw)):
            return None
        headers = tuple([header for header in call.headers if header[0] != _OWN_HEADER])
        member = _Member(call, attempt, inputs, extent)
        batch = self._join(_Key(endpoint.id, inputs.kind, inputs.rest, headers), member, endpoint, rules)
        self._deadlines.add(member)
        try:
            share = await member.outcome
        except BaseException:
            self._leave(batch, member)
            if batch.task is None:  # it still waited
                call.record.admitted_s = attempt.chosen_s = perf_counter()
            else:
                batch.tell(call, attempt)
                relay.head = batch.head
            raise
        finally:
            self._deadlines.discard(member)
            del member  # it holds the failure, whose traceback holds this frame: garbage until a collection
        if share is not None:
            batch.tell(call, attempt)
        elif batch.task is None:
            call.record.admitted_s = attempt.chosen_s = perf_counter()
        else:
            _goes_alone(call, batch, attempt)
        return share

    # --- waiting

    def _join(self, key: _Key, member: _Member, endpoint: Endpoint, rules: BatchRules) -> _Batch:
        waiting = self._waiting.setdefault(key, [])
        place = rules.place([batch.extent for batch in waiting], member.extent)
        if place is None:
            batch = _Batch(key, endpoint, member)
            waiting.append(batch)
            wait_s = member.call.pool.config.embeddings_batch.wait_s
            batch.timer = asyncio.get_running_loop().call_later(wait_s, self._send, batch)
        else:
            batch = waiting[place]
            batch.members.append(member)
        if rules.is_full(batch.extent):
            self._send(batch)
        return batch

    def _leave(self, batch: _Batch, member: _Member) -> None:
        """Takes a member out, however it left; a batch without any is given up."""
        batch.members.remove(member)
        if batch.members:
            return
        if batch.task is not None:
            batch.task.cancel()
        elif batch.timer is not None:
            self._forget(batch)

    def _forget(self, batch: _Batch) -> None:
        """It waits no longer."""
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        waiting = self._waiting[batch.key]
        waiting.remove(batch)
        if not waiting:
            del self._waiting[batch.key]

    # --- sending

    def _send(self, batch: _Batch) -> None:
        self._forget(batch)
        call = batch.members[0].call
        batch.attempt.chosen_s = perf_counter()
        inputs = sum(member.extent.inputs for member in batch.members)
        self._metrics.families.embeddings_batch_inputs.at(call.pool.name, call.record.model).observe(inputs)
        if len(batch.members) == 1:
            batch.members[0].done(None)
        else:
            batch.task = asyncio.get_running_loop().create_task(self._serve(batch))

    async def _serve(self, batch: _Batch) -> None:
        """Sends the joined request and tells each member what came of it. Raises nothing but CancelledError."""
        members = tuple(batch.members)
        call = members[0].call
        # The relay only collects an answer: it writes nothing to the link, and nothing of note into the record. Each
        # member's total time runs on its own; that of the last to come is the longest.
        record = max((member.call.record for member in members), key=lambda record: record.received_s)
        gaps = self._metrics.endpoint(call.pool.name, record.model, batch.endpoint.id).gaps
        relay = Relay(record, batch.attempt, call.link, call.pool.config.timeouts, gaps, self._deadlines, inf, None)
        for follower in members[1:]:
            follower.call.follows = True
        try:
            answer, dropped = await self._exchange(batch, members, relay)
            answers = split(answer.body, [member.inputs for member in members], call.request.model, answer.model)
        except Exception as failure:
            let_go(failure)
            if isinstance(failure, CannotSplit):
                self._warn(batch.endpoint, failure)
            if isinstance(failure, CannotSplit) or (isinstance(failure, EngineFailed) and failure.status in _REFUSED):
                for member in members:
                    member.call.follows = False
                    member.done(None)
            else:  # also a fault of ours: nobody may wait for ever
                for place, member in enumerate(batch.members):
                    member.call.follows = place > 0  # the first that is still there speaks for all
                    member.failed(failure)
        else:
            for member, own in zip(members, answers, strict=True):
                member.done(Share(own, dropped))
        finally:
            batch.head = relay.head
            relay.close()

    async def _exchange(
        self, batch: _Batch, members: tuple[_Member, ...], relay: Relay
    ) -> tuple[Answer, tuple[str, ...]]:
        endpoint, adapter = batch.endpoint, batch.endpoint.adapter
        call = members[0].call
        model = endpoint.config.model or call.pool.name
        request = join(call.request, [member.inputs for member in members], model)
        path, body, streamed, dropped = adapter.encode(request, model)
        request_id = [header for header in call.headers if header[0] == _OWN_HEADER]
        speaker = next((member for member in members if member.call.record.sampled), members[0])
        batch.speaker = (speaker.call.record.trace_id, speaker.attempt.span_id)
        context = context_headers(speaker.call.record, speaker.attempt)
        wire = endpoint.wire(request.method, path, body, (*batch.key.headers, *request_id, *context))
        exchange = await endpoint.upstream.send(wire, relay, connect_timeout_s=call.pool.config.timeouts.connect_s)
        relay.sent(exchange, stream=streamed)
        head = await relay.head_came()
        if not 200 <= head.status < 300:
            raise adapter.read_error(head.status, await relay.body())
        relay.collect(adapter.answer_reader(request, head, streamed=streamed))
        return await relay.answer(), dropped

    def _warn(self, endpoint: Endpoint, failure: CannotSplit) -> None:
        if endpoint.id not in self._warned:
            self._warned.add(endpoint.id)
            log.warning("endpoint %s gives no joined embeddings, so they are asked for twice: %s", endpoint.id, failure)


def _goes_alone(call: Call, batch: _Batch, attempt: AttemptRecord) -> None:
    """The engine refused the joined request: an attempt of its own, before the one that is still to be made."""
    now_s = perf_counter()
    joined = replace(attempt, outcome="client_error", error_type="not_joined", ended_s=now_s)
    batch.tell(call, joined)
    call.record.attempts.insert(-1, joined)
    attempt.chosen_s, attempt.span_id = now_s, new_span_id()
    attempt.route_s, attempt.decision = None, None  # one choice for both
