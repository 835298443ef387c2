"""Two attempts at one request at a time: the first to give an output answers, the other is ended there and then.

The first attempt runs in the request's own task, and most requests have no other. A timer begins the second one, in a
task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from .errors import GatewayError
from .flight import AttemptRecord
from .relay import Relay

log = logging.getLogger("weir.hedging")

Attempt = Coroutine[Any, Any, GatewayError | None]
"""Returns why it failed; None once the client has its answer."""

Result = Literal["won", "lost"]


class _Runner:
    """One of the two.

    Attributes:
        task: What it runs in; None once it is over.
    """

    __slots__ = ("attempt", "relay", "task")

    def __init__(self, attempt: AttemptRecord, relay: Relay, task: asyncio.Task[object]) -> None:
        self.attempt = attempt
        self.relay = relay
        self.task: asyncio.Task[object] | None = task


class Race:
    """The attempts at one request that run beside each other.

    Whoever is about to answer claims the race first (``Relay.on_answer``). From that call on the other one's relay is
    closed, so that no callback of its engine reaches it, and its task is cancelled, so that it gets no further than
    where it waits: only one can answer, whatever else happens in the same turn of the event loop.

    Attributes:
        result: How the second attempt fared; None while it has not begun.
    """

    def __init__(self) -> None:
        self.result: Result | None = None
        self._runners: list[_Runner] = []
        self._first_lost = False
        self._second: asyncio.Task[GatewayError | None] | None = None
        self._decided = False

    def enter(self, attempt: AttemptRecord, relay: Relay) -> None:
        """Takes part, from the task that calls this."""
        task = asyncio.current_task()
        assert task is not None
        runner = _Runner(attempt, relay, task)
        self._runners.append(runner)
        relay.on_answer = lambda: self._claim(runner)

    def leave(self, relay: Relay) -> None:
        """The attempt is over."""
        for runner in self._runners:
            if runner.relay is relay:
                runner.task = None

    async def run(self, first: Attempt, second: Callable[[], Attempt | None], after_s: float) -> GatewayError | None:
        """Runs the first attempt and, if it gives no output for so long, a second one beside it.

        Args:
            first: Runs here.
            second: Returns the second attempt, or None if there is to be none. Asked once at most.
            after_s: How long the first one is waited for.

        Returns:
            Why the last of both to end failed, or the first one by the client's fault; None once the client has its
            answer.
        """
        task = asyncio.current_task()
        assert task is not None
        cancellings = task.cancelling()
        timer = asyncio.get_running_loop().call_later(after_s, self._begin, second)
        error: GatewayError | None = None
        try:
            try:
                error = await first
            except asyncio.CancelledError:
                # The client may have left in the same moment
                if not self._first_lost or task.uncancel() > cancellings:
                    raise
            timer.cancel()
            if self._second is None:
                return error
            undecided = error is not None and not self._decided and _helps(error) and not self._second.done()
            if self._first_lost or undecided:
                going_on, self._second = self._second, None
                return await going_on
            if not self._decided:
                self._claim(self._runners[0])  # its failure is what the client is told
            return error
        finally:
            timer.cancel()
            self._decided = True
            if self._second is not None:
                await _ended(self._second)
            self._second = None  # its frames hold this object: garbage until a collection

    def _begin(self, second: Callable[[], Attempt | None]) -> None:
        if self._decided:
            return
        attempt = second()
        if attempt is not None:
            self.result = "lost"
            self._second = asyncio.get_running_loop().create_task(attempt)

    def _claim(self, winner: _Runner) -> None:
        self._decided = True
        for runner in self._runners:
            if runner is winner or runner.task is None:
                continue
            runner.attempt.lost = True
            runner.relay.close()
            runner.task.cancel()
            if runner is self._runners[0]:
                self._first_lost = True
        if winner is not self._runners[0]:
            self.result = "won"
        elif self._second is not None:
            self._second.cancel()  # also one that has not got as far as to take part


def _helps(error: GatewayError) -> bool:
    """Whether another endpoint may do what this one did not."""
    return error.retryable or error.elsewhere


async def _ended(task: asyncio.Task[GatewayError | None]) -> None:
    """Ends the second attempt, if it still runs, and waits until it has given back what it holds."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (fault := task.exception()) is not None:
        log.error("a second attempt failed by a fault of Weir's", exc_info=fault)
