"""One attempt at one engine: the sink of its exchange, its timers, and the stream's way to the client.

Every read of a stream goes from the engine's read callback to the client's transport, the first output with the head
before it; the request's coroutine awaits one future for the end. A chunk costs a decode, a clock read, a bisect and a
write.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from math import inf
from time import perf_counter

from adapters.said import Said
from adapters.types import AdapterError, Answer, AnswerReader, MalformedStream, PlainChunk, StreamDecoder
from policies.usual_waits import SilenceLimits

from .client_link import ClientLink
from .config import TimeoutsConfig
from .deadlines import Deadlines
from .flight import AttemptRecord, FlightRecord, Stall
from .frames import let_go
from .instruments.histogram import GAP, Distribution
from .own_load import Lease
from .upstream.contract import Exchange, ResponseHead, TransportError

MAX_ERROR_BODY_BYTES = 65536
# Chunks that come before the first output wait for it: a role, the progress of a prefill.
MAX_HELD_BYTES = 1024 * 1024
MAX_STALLS = 8


class TimedOut(Exception):
    """A timer of the pool ran out.

    Attributes:
        timer: ``head``, ``first_token``, ``stall`` or ``total``; ``wedged`` if the endpoint was found to hang.
        learned: The limit is not the configured one, but what the pool's own answers taught.
    """

    def __init__(self, timer: str, limit_s: float, *, learned: bool = False) -> None:
        super().__init__(timer)
        self.timer = timer
        self.limit_s = limit_s
        self.learned = learned


class Relay:
    """Implements ``upstream.contract.Sink``, ``client_link.Flow``, ``own_load.Outputs`` and ``deadlines.Watched``.

    Attributes:
        head: The engine's head, once it has come.
        failure: Why the attempt is over, if it is over before its end.
        ended: The engine's body is whole.
        last_s: When the last output came, or anything of a body that is no stream.
        on_answer: Told once, before the first output, or a whole answer, goes any further; None if nobody asks.
    """

    __slots__ = (
        "_attempt",
        "_body",
        "_body_bytes",
        "_bytes_out",
        "_chunks_before",
        "_commit",
        "_deadlines",
        "_decoder",
        "_doubted_s",
        "_exchange",
        "_expected",
        "_expected_type",
        "_gap_counts",
        "_gap_sums_s",
        "_gaps",
        "_held",
        "_held_bytes",
        "_lease",
        "_limits",
        "_link",
        "_live",
        "_longest_gap_s",
        "_loop",
        "_notable_gap_s",
        "_outputs",
        "_paused_s",
        "_plain",
        "_quoted",
        "_reader",
        "_record",
        "_said",
        "_shortest_s",
        "_stall_s",
        "_stream",
        "_timeouts",
        "_total_due_s",
        "_waiter",
        "_write_chunk",
        "due_s",
        "ended",
        "failure",
        "head",
        "last_s",
        "on_answer",
    )

    def __init__(
        self,
        record: FlightRecord,
        attempt: AttemptRecord,
        link: ClientLink,
        timeouts: TimeoutsConfig,
        gaps: Distribution,
        deadlines: Deadlines,
        stall_s: float,
        lease: Lease | None,
        limits: SilenceLimits | None = None,
    ) -> None:
        self.head: ResponseHead | None = None
        self.failure: Exception | None = None
        self.ended = False
        self._record = record
        self._attempt = attempt
        self._link = link
        self._timeouts = timeouts
        self._lease = lease
        self._gaps = gaps
        self._gap_counts = gaps.counts
        self._gap_sums_s = gaps.sums
        self._longest_gap_s = 0.0
        self._stall_s = stall_s
        self._notable_gap_s = 0.0  # the longest so far, at most a stall's: one comparison finds both
        self._bytes_out = 0
        self._chunks_before = record.chunks  # of a stream that this attempt goes on with
        self._said: Said | None = None
        self._quoted: bytearray | None = None
        self._deadlines = deadlines
        self._total_due_s = record.received_s + timeouts.total_s
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._commit: Callable[[], None] | None = None
        self._expected: StreamDecoder | None = None
        self._expected_type = ""
        self._decoder: StreamDecoder | None = None
        self._reader: AnswerReader | None = None
        self._stream = False
        self._live = False
        self._plain: PlainChunk | None = None
        self._write_chunk = link.write_chunk or link.write
        self._outputs = 0
        self.last_s = 0.0
        self._paused_s = 0.0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._shortest_s = timeouts.shortest_s if limits is None else min(timeouts.shortest_s, *limits)
        self._limits = limits
        self._doubted_s = inf
        self.on_answer: Callable[[], None] | None = None
        self.due_s = inf

    # --- for the request's coroutine

    def sent(self, exchange: Exchange, *, stream: bool) -> None:
        """The request is out; the engine was asked for a stream or not."""
        self._exchange = exchange
        self._stream = stream
        if self._lease is not None:
            self._lease.outputs = self
        self._attempt.reused = exchange.reused
        self._attempt.connected_s = exchange.connected_s
        self._attempt.sent_s = self.last_s = exchange.sent_s
        self.due_s = min(exchange.sent_s + self._shortest_s, self._total_due_s)
        self._deadlines.add(self)

    async def head_came(self) -> ResponseHead:
        """Waits for the engine's head.

        Raises:
            TransportError, TimedOut: The attempt is over.
        """
        while self.head is None:
            await self._wait()
        return self.head

    def keep(self, said: Said) -> None:
        """Plain chunks that pass undecoded are kept as well."""
        self._said, self._quoted = said, said.quoted

    async def stream(self, decoder: StreamDecoder, content_type: str, commit: Callable[[], None]) -> bytes | None:
        """Relays a stream to its end.

        Args:
            decoder: Of the engine's stream.
            content_type: How that engine's streams are told from other answers.
            commit: Sends the client's head. Called once, with the first output or at the end of an answer without any.

        Returns:
            What is still to be written before the end marker; None if the engine's answer is no stream (``head``).

        Raises:
            AdapterError, TransportError, TimedOut: The stream broke, or (not committed) never began.
        """
        self._expected, self._expected_type, self._commit = decoder, content_type, commit
        while not (decoder.finished or self.ended):
            if self.head is not None and self._decoder is None:
                self._expected = self._commit = None
                return None
            await self._wait()
        if self._decoder is None:
            return None
        last = b"" if decoder.finished and not self.ended else decoder.close()
        if self._commit is not None:
            self._go_live(self._commit)
        if self._exchange is not None and not self.ended:
            self._exchange.release()  # after the end marker the body has nothing more to say
            self._exchange = None
        self._tell()
        return last

    def collect(self, reader: AnswerReader) -> None:
        """The body is a whole answer for the client."""
        self._reader = reader
        early, self._body = self._body, []
        for data in early:
            self.on_body(data)

    def _go_live(self, commit: Callable[[], None]) -> None:
        """Sends the client's head and what was held back; every later read goes out at once."""
        self._commit = None
        self._answers()
        commit()
        self._live = True
        self._take_flow()
        held = b"".join(self._held)
        self._held = []
        if held:
            self._link.write(held)
            self._bytes_out += len(held)
        if not self._outputs:
            return
        now_s = perf_counter()
        if self._chunks_before:
            self._longest_gap_s = max(self._longest_gap_s, now_s - (self._record.last_output_s or now_s))
        else:
            self._record.first_output_s = now_s

    def _take_flow(self) -> None:
        """From now on the client's pace is the engine's; also when the client stands still already."""
        self._link.source = self
        if self._link.blocked:
            self.pause()

    async def answer(self) -> Answer:
        """Waits for a whole answer.

        Raises:
            AdapterError, TransportError, TimedOut: There is none.
        """
        reader = self._reader
        assert reader is not None
        while not self.ended:
            await self._wait()
        answer = reader.close()
        self._answers()
        return answer

    async def body(self) -> bytes:
        """Waits for the body of an error answer; returns its first 64 KiB."""
        while not self.ended and self._body_bytes < MAX_ERROR_BODY_BYTES:
            await self._wait()
        return b"".join(self._body)[:MAX_ERROR_BODY_BYTES]

    def pass_on(self) -> bytes:
        """From now on the body goes to the client undecoded. Returns what has come of it already."""
        self._live = True
        self._take_flow()
        passed = b"".join(self._body)
        self._body.clear()
        self._bytes_out += len(passed)
        return passed

    async def whole(self) -> None:
        """Waits for the end of a body that is passed on."""
        while not self.ended:
            await self._wait()

    def close(self) -> None:
        """Ends the attempt, whatever its state, and tells the record what was counted. Idempotent."""
        self._deadlines.discard(self)
        self._plain = self._commit = self.on_answer = None
        if self._link.source is self:
            self._link.source = None
        exchange = None if self.ended else self._exchange
        if self._paused_s:
            self._record.client_write_wait_s += perf_counter() - self._paused_s
            self._paused_s = 0.0
        elif exchange is not None:
            self._note_last_gap()
        if exchange is not None:
            exchange.abort()
        self._exchange = None
        if self.failure is not None:
            let_go(self.failure)
        self._tell()

    def _tell(self) -> None:
        record = self._record
        if self._attempt.lost:  # the record tells of the other one
            return
        record.longest_gap_s = max(record.longest_gap_s, self._longest_gap_s)
        record.bytes_out += self._bytes_out
        self._bytes_out = 0
        decoder = self._decoder
        if decoder is not None:
            self._attempt.timings = decoder.timings
            if record.caller is not None:
                self._attempt.answer = decoder.facts()
            if self._outputs or decoder.usage is not None:
                decoder.outputs = self._outputs
                record.usage = decoder.tokens()
        if self._live and self._outputs:
            self._attempt.chunks = self._outputs
            record.chunks = self._chunks_before + self._outputs
            record.last_output_s = max(self.last_s, record.first_output_s or 0.0)

    # --- contract.Sink

    def on_head(self, head: ResponseHead) -> None:
        self.head = head
        self._attempt.head_s = self.last_s = perf_counter()
        self._attempt.status = head.status
        exchange = self._exchange
        if exchange is not None and self._attempt.reused and not exchange.reused:  # a silent retry
            self._attempt.reused = False
            self._attempt.connected_s, self._attempt.sent_s = exchange.connected_s, exchange.sent_s
        if self._expected is not None and 200 <= head.status < 300 and head.may_be(self._expected_type):
            self._decoder = self._expected
        else:
            self._wake()

    def on_body(self, data: bytes) -> None:
        # The usual read of a stream, in one function and on few objects: when chunks are far apart, each object that
        # is touched is a cache miss, and they are most of what a chunk costs.
        plain = self._plain
        if plain is not None:
            prefix, text_at, suffix, suffix_bytes = plain
            if data.startswith(prefix) and data.endswith(suffix):
                quote = data.find(b'"', text_at)
                if quote > text_at and quote + suffix_bytes == len(data):
                    now_s = perf_counter()
                    gap_s = now_s - self.last_s
                    self._gap_sums_s[0] += gap_s
                    self._gap_counts[bisect_left(GAP, gap_s)] += 1
                    self._outputs += 1
                    quoted = self._quoted
                    if quoted is not None:
                        quoted += data[text_at : quote + 1]
                    if gap_s > self._notable_gap_s:
                        self._note_gap(now_s, gap_s, self._outputs)
                    self.last_s = now_s
                    self._bytes_out += len(data)
                    self._write_chunk(b"%x\r\n%b\r\n" % (len(data), data))
                    return
        if self._decoder is None:
            self._collect(data)
        else:
            self._decode(data, self._decoder)

    def _decode(self, data: bytes, decoder: StreamDecoder) -> None:
        decoder.outputs = self._outputs
        out = decoder.feed(data)
        if decoder.outputs != self._outputs:
            self._count(decoder.outputs)
        if out:
            if self._live:
                self._bytes_out += len(out)
                self._link.write(out)
            else:
                self._hold(out)
        if decoder.error is not None:
            self._fail(decoder.error)
        elif decoder.finished:
            self._wake()
        elif self._commit is not None and self._outputs and self.failure is None:
            self._go_live(self._commit)
        self._let_pass(decoder)

    def _let_pass(self, decoder: StreamDecoder) -> None:
        """Plain reads may pass by from now on, if there are any and the client's side can take them so."""
        passing = self._live and self._outputs and self._link.write_chunk is not None and not self._link.gone
        self._plain = decoder.plain if passing else None

    def on_end(self) -> None:
        self.ended = True
        self._wake()

    def on_error(self, error: TransportError) -> None:
        if not error.sent:  # nor was it in a silent retry
            self._attempt.reused, self._attempt.connected_s, self._attempt.sent_s = False, None, None
        self._fail(error)

    # --- client_link.Flow

    def leave(self) -> None:
        self._plain = None

    def pause(self) -> None:
        if self._exchange is not None and not self._paused_s:
            self._paused_s = perf_counter()
            self._exchange.pause()

    def resume(self) -> None:
        if self._paused_s:
            now_s = perf_counter()
            self._record.client_write_wait_s += now_s - self._paused_s
            self._paused_s = 0.0
            self.last_s = now_s  # the silence was the client's
            if self._exchange is not None:
                self._exchange.resume()

    # --- inside

    def _count(self, outputs: int) -> None:
        now_s = perf_counter()
        if self._outputs:
            new, gap_s = outputs - self._outputs, now_s - self.last_s
            if gap_s > self._notable_gap_s:
                self._note_gap(now_s, gap_s, self._outputs + 1)
            self._gaps.observe_n(gap_s / new, new)
        else:
            self._first_output(now_s)
            if self._live and not self._chunks_before:
                self._record.first_output_s = now_s
            self._gaps.observe_n(0.0, outputs - 1)  # what came in one read came without a gap
        self._outputs = outputs
        self.last_s = now_s

    def _answers(self) -> None:
        if self.on_answer is not None:
            on_answer, self.on_answer = self.on_answer, None
            on_answer()

    def _first_output(self, now_s: float) -> None:
        self._attempt.first_output_s = now_s
        if self._lease is not None:
            self._lease.first_output(self._attempt.sent_s or now_s, now_s)

    def _note_gap(self, now_s: float, gap_s: float, chunk: int) -> None:
        self._longest_gap_s = max(self._longest_gap_s, gap_s)
        self._notable_gap_s = min(self._longest_gap_s, self._stall_s)
        if gap_s > self._stall_s and len(self._attempt.stalls) < MAX_STALLS:
            self._attempt.stalls += (Stall(now_s, gap_s, chunk),)

    def _note_last_gap(self) -> None:
        """The silence in which a stream ends that never came to its end: its client has felt it like any other."""
        now_s = perf_counter()
        if self._live and self._outputs and now_s - self.last_s > self._notable_gap_s:
            self._note_gap(now_s, now_s - self.last_s, self._outputs + 1)

    def _hold(self, out: bytes) -> None:
        if self._attempt.first_byte_s is None:
            self._attempt.first_byte_s = perf_counter()
        self._held.append(out)
        self._held_bytes += len(out)
        if self._held_bytes > MAX_HELD_BYTES:
            self._fail(MalformedStream(f"the engine sent {MAX_HELD_BYTES} bytes without any output"))

    def _collect(self, data: bytes) -> None:
        now_s = perf_counter()
        if self._attempt.first_byte_s is None:
            self._attempt.first_byte_s = now_s
        if self._live:
            self.last_s = now_s
            self._link.write(data)
            self._bytes_out += len(data)
            return
        reader = self._reader
        if reader is None:
            self._body.append(data)
            self._body_bytes += len(data)
            if self._body_bytes >= MAX_ERROR_BODY_BYTES:
                self._wake()
            return
        try:
            reader.feed(data)
        except AdapterError as error:
            self._fail(error)
            return
        if not self._stream:
            self.last_s = now_s
        elif reader.outputs != self._outputs:  # comments are no progress
            self.last_s = now_s
            if self._outputs == 0:
                self._first_output(now_s)
                self._answers()
            self._outputs = reader.outputs

    def _fail(self, error: Exception) -> None:
        if self.failure is None and not self.ended:
            self.failure = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._waiter = self._loop.create_future()
        await self._waiter
        if self.failure is not None:
            raise self.failure

    # --- own_load.Outputs

    @property
    def output_s(self) -> float | None:
        return self.last_s if self._outputs else None

    @property
    def awaits_first_s(self) -> float | None:
        return self._attempt.sent_s if self._stream and not self._outputs else None

    def give_up(self) -> None:
        sent_s = self.awaits_first_s
        if sent_s is not None:
            self._fail(TimedOut("wedged", perf_counter() - sent_s))

    # --- deadlines.Watched

    def on_due(self, now_s: float) -> None:
        if self.ended or self.failure is not None:
            return
        if self._said is not None:
            self._said.bound()
        due_s, timer, limit_s = self._next_timer()
        if due_s <= now_s:
            self._fail(TimedOut(timer, limit_s))
        elif self._limits is not None and self._lease is not None and self._is_stuck(self._limits, self._lease, now_s):
            timer = "stall" if self._outputs else "first_token"
            self._fail(TimedOut(timer, now_s - self._silent_since_s, learned=True))
        else:
            # Another timer may begin meanwhile, but none that is shorter than this
            self.due_s = min(due_s, now_s + self._shortest_s)

    @property
    def _silent_since_s(self) -> float:
        return self.last_s if self._outputs else self._attempt.sent_s or 0.0

    def _is_stuck(self, limits: SilenceLimits, lease: Lease, now_s: float) -> bool:
        """Whether it has been silent for longer than was ever heard of, and not for a reason that others share.

        That a later attempt at the same endpoint has had its output rules out a model that is loaded, a queue and a
        pause of the engine's. It may just have happened, as all of them begin at once after a pause: so this one gets
        the same time again.
        """
        if not self._stream or self._paused_s:
            return False
        since_s, limit_s = self._silent_since_s, limits.stall_s if self._outputs else limits.first_token_s
        if now_s < since_s + limit_s or not lease.overtaken_since(since_s):
            return False
        if not since_s < self._doubted_s <= now_s:  # not yet during this silence
            self._doubted_s = now_s
        return now_s >= self._doubted_s + limit_s

    def _next_timer(self) -> tuple[float, str, float]:
        """Returns when which of the timers that count now runs out, and its limit in seconds."""
        timeouts = self._timeouts
        timers = [(self._total_due_s, "total", timeouts.total_s)]
        if self._outputs == 0 and self._stream:
            sent_s = self._attempt.sent_s or 0.0
            timers.append((sent_s + timeouts.first_token_s, "first_token", timeouts.first_token_s))
            if self.head is None:
                timers.append((sent_s + timeouts.head_s, "head", timeouts.head_s))
        elif self.head is not None and not self._paused_s:
            timers.append((self.last_s + timeouts.stall_s, "stall", timeouts.stall_s))
        return min(timers)
