"""One attempt at one engine: the sink of its exchange, its timers, and the stream's way to the client.

Until the commit the relay collects what the engine sends and wakes the request's coroutine when the first output has
come. After ``go_live`` every read goes from the engine's read callback to the client's transport; the coroutine awaits
one future for the end. A chunk costs a decode, a clock read, a bisect and a write.
"""

from __future__ import annotations

import asyncio
import time

from adapters.types import AdapterError, Answer, AnswerReader, StreamDecoder

from .client_link import ClientLink
from .config import TimeoutsConfig
from .deadlines import Deadlines
from .flight import AttemptRecord, FlightRecord
from .histogram import Histogram
from .upstream.contract import Exchange, ResponseHead, TransportError

MAX_ERROR_BODY_BYTES = 65536


class TimedOut(Exception):
    """A timer of the pool ran out.

    Attributes:
        timer: ``head``, ``first_token``, ``stall`` or ``total``.
    """

    def __init__(self, timer: str, limit_s: float) -> None:
        super().__init__(timer)
        self.timer = timer
        self.limit_s = limit_s


class Relay:
    """Implements ``upstream.contract.Sink``, ``client_link.Flow`` and ``deadlines.Watched``.

    Attributes:
        head: The engine's head, once it has come.
        failure: Why the attempt is over, if it is over before its end.
        ended: The engine's body is whole.
    """

    __slots__ = (
        "_answer",
        "_attempt",
        "_body",
        "_body_bytes",
        "_deadlines",
        "_decoder",
        "_exchange",
        "_gaps",
        "_held",
        "_last_s",
        "_limit_s",
        "_link",
        "_live",
        "_loop",
        "_outputs",
        "_paused_s",
        "_reader",
        "_record",
        "_stream",
        "_timeouts",
        "_timer",
        "_total_due_s",
        "_waiter",
        "due_s",
        "ended",
        "failure",
        "head",
    )

    def __init__(
        self,
        record: FlightRecord,
        attempt: AttemptRecord,
        link: ClientLink,
        timeouts: TimeoutsConfig,
        gaps: Histogram,
        deadlines: Deadlines,
    ) -> None:
        self.head: ResponseHead | None = None
        self.failure: Exception | None = None
        self.ended = False
        self._record = record
        self._attempt = attempt
        self._link = link
        self._timeouts = timeouts
        self._gaps = gaps
        self._deadlines = deadlines
        self._total_due_s = record.received_s + timeouts.total_s
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._decoder: StreamDecoder | None = None
        self._reader: AnswerReader | None = None
        self._stream = False
        self._live = False
        self._outputs = 0
        self._last_s = 0.0  # last output, or last progress of a body that is no stream
        self._paused_s = 0.0
        self._held: list[bytes] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._timer = ""  # the one that is due next, and its limit
        self._limit_s = 0.0
        self.due_s = self._total_due_s

    # --- for the request's coroutine

    def sent(self, exchange: Exchange, *, stream: bool) -> None:
        """The request is out; the engine was asked for a stream or not."""
        self._exchange = exchange
        self._stream = stream
        self._attempt.reused = exchange.reused
        self._attempt.connected_s = exchange.connected_s
        self._attempt.sent_s = self._last_s = exchange.sent_s
        self._set_due()
        self._deadlines.add(self)

    async def head_came(self) -> ResponseHead:
        """Waits for the engine's head.

        Raises:
            TransportError, TimedOut: The attempt is over.
        """
        while self.head is None:
            await self._wait()
        return self.head

    def decode(self, decoder: StreamDecoder) -> None:
        """The body is a stream for the client; what has come of it already is decoded now."""
        self._decoder = decoder
        self._replay()

    def collect(self, reader: AnswerReader) -> None:
        """The body is a whole answer for the client."""
        self._reader = reader
        self._replay()

    async def first_output(self) -> None:
        """Waits until the stream can be committed: its first output has come, or it is finished without any.

        Raises:
            AdapterError, TransportError, TimedOut: The attempt is over before that.
        """
        decoder = self._decoder
        assert decoder is not None
        while decoder.outputs == 0 and not decoder.finished and not self.ended:
            await self._wait()
        if decoder.outputs == 0 and self.ended and not decoder.finished:
            self._held.append(decoder.close())  # raises unless the answer is whole after all

    def go_live(self) -> None:
        """The client's head is out: what was held back goes out, and every later read at once."""
        self._live = True
        self._link.flow = self
        held = b"".join(self._held)
        self._held = []
        if held:
            self._link.write(held)
            self._record.bytes_out += len(held)
        now_s = time.perf_counter()
        if self._outputs:
            self._record.first_output_s = self._record.last_output_s = now_s
            self._record.chunks = self._outputs

    async def over(self) -> bytes:
        """Waits for the end of the stream. Returns what is still to be written before the end marker.

        Raises:
            AdapterError, TransportError, TimedOut: The stream broke.
        """
        decoder = self._decoder
        assert decoder is not None
        while not (decoder.finished or self.ended):
            await self._wait()
        last = b"" if decoder.finished and not self.ended else decoder.close()
        if self._exchange is not None and not self.ended:
            self._exchange.release()  # after the end marker the body has nothing more to say
        self._record.usage = decoder.usage
        return last

    async def answer(self) -> Answer:
        """Waits for a whole answer.

        Raises:
            AdapterError, TransportError, TimedOut: There is none.
        """
        reader = self._reader
        assert reader is not None
        while not self.ended:
            await self._wait()
        return reader.close()

    async def body(self) -> bytes:
        """Waits for the body of an error answer; returns its first 64 KiB."""
        while not self.ended and self._body_bytes < MAX_ERROR_BODY_BYTES:
            await self._wait()
        return b"".join(self._body)[:MAX_ERROR_BODY_BYTES]

    def pass_on(self) -> bytes:
        """From now on the body goes to the client undecoded. Returns what has come of it already."""
        self._live = True
        self._link.flow = self
        passed = b"".join(self._body)
        self._body.clear()
        return passed

    async def whole(self) -> None:
        """Waits for the end of a body that is passed on."""
        while not self.ended:
            await self._wait()

    def close(self) -> None:
        """Ends the attempt, whatever its state. Idempotent."""
        self._deadlines.discard(self)
        if self._link.flow is self:
            self._link.flow = None
        if self._paused_s:
            self._record.client_write_wait_s += time.perf_counter() - self._paused_s
            self._paused_s = 0.0
        if self._exchange is not None and not self.ended:
            self._exchange.abort()
        self._exchange = None

    # --- contract.Sink

    def on_head(self, head: ResponseHead) -> None:
        self.head = head
        self._attempt.head_s = self._last_s = time.perf_counter()
        self._attempt.status = head.status
        if self._exchange is not None:
            self._set_due()
        self._wake()

    def on_body(self, data: bytes) -> None:
        decoder = self._decoder
        if decoder is None:
            self._collect(data)
            return
        out = decoder.feed(data)
        outputs = decoder.outputs
        if outputs != self._outputs:
            self._count(outputs)
        if out:
            if self._live:
                self._link.write(out)
                self._record.bytes_out += len(out)
            else:
                self._held.append(out)
                if self._attempt.first_byte_s is None:
                    self._attempt.first_byte_s = time.perf_counter()
        if decoder.error is not None:
            self._fail(decoder.error)
        elif decoder.finished:
            self._wake()

    def on_end(self) -> None:
        self.ended = True
        self._wake()

    def on_error(self, error: TransportError) -> None:
        self._fail(error)

    # --- client_link.Flow

    def pause(self) -> None:
        if self._exchange is not None and not self._paused_s:
            self._paused_s = time.perf_counter()
            self._exchange.pause()

    def resume(self) -> None:
        if self._paused_s:
            now_s = time.perf_counter()
            self._record.client_write_wait_s += now_s - self._paused_s
            self._paused_s = 0.0
            self._last_s = now_s  # the silence was the client's
            self._set_due()
            if self._exchange is not None:
                self._exchange.resume()

    # --- inside

    def _count(self, outputs: int) -> None:
        now_s = time.perf_counter()
        new = outputs - self._outputs
        record = self._record
        if self._outputs == 0:
            self._attempt.first_output_s = now_s
            if new > 1:
                self._gaps.observe_n(0.0, new - 1)
            self._outputs = outputs
            self._last_s = now_s
            self._set_due()  # from here on a stall counts
            self._wake()
        else:
            gap_s = now_s - self._last_s
            self._gaps.observe_n(gap_s / new, new)
            if gap_s > record.longest_gap_s:
                record.longest_gap_s = gap_s
        self._outputs = outputs
        self._last_s = now_s
        if self._live:
            record.chunks = outputs
            record.last_output_s = now_s
            if record.first_output_s is None:
                record.first_output_s = now_s

    def _collect(self, data: bytes) -> None:
        now_s = self._last_s = time.perf_counter()
        if self._attempt.first_byte_s is None:
            self._attempt.first_byte_s = now_s
        if self._live:
            self._link.write(data)
            self._record.bytes_out += len(data)
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
        if self._attempt.first_output_s is None and reader.outputs:
            self._attempt.first_output_s = now_s
            self._outputs = 1
            self._set_due()

    def _replay(self) -> None:
        early, self._body = self._body, []
        for data in early:
            self.on_body(data)

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

    # --- deadlines.Watched

    def on_due(self, now_s: float) -> None:
        if self.ended or self.failure is not None:
            return
        self._set_due()
        if self.due_s <= now_s:
            self._fail(TimedOut(self._timer, self._limit_s))

    def _set_due(self) -> None:
        """Finds the timer that runs out next. To be called when another one begins to count."""
        timeouts = self._timeouts
        self.due_s, self._timer, self._limit_s = self._total_due_s, "total", timeouts.total_s
        if self._outputs == 0 and self._stream:
            sent_s = self._attempt.sent_s or 0.0
            self._sooner(sent_s + timeouts.first_token_s, "first_token", timeouts.first_token_s)
            if self.head is None:
                self._sooner(sent_s + timeouts.head_s, "head", timeouts.head_s)
        elif self.head is not None and not self._paused_s:
            self._sooner(self._last_s + timeouts.stall_s, "stall", timeouts.stall_s)

    def _sooner(self, due_s: float, timer: str, limit_s: float) -> None:
        if due_s < self.due_s:
            self.due_s, self._timer, self._limit_s = due_s, timer, limit_s
