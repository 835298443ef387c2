"""The time model tied to the event loop's clock: answers go in, their tokens come out when they are due."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.simulator.batching import Batch, Pace
from gateway.simulator.metrics_text import EngineCounts
from gateway.simulator.output import Output
from gateway.simulator.text import Answer

_TIMER_GRAIN_S = 0.001  # uvloop rounds timers to milliseconds; a shorter one would fire early and spin


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence to run: a prompt and its answer, or a prompt only (an embedding)."""

    prompt_tokens: int
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class Run:
    """The jobs of one call while they run.

    Attributes:
        outputs: Every job ends with one that has a finish reason. Choices are numbered as the jobs are.
        admitted: Set once one of the jobs has a slot, or will never get one.
        speaking: Set once there is an output.
    """

    outputs: asyncio.Queue[Output] = field(default_factory=asyncio.Queue[Output])
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    speaking: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, output: Output) -> None:
        """Hands out one output."""
        self.outputs.put_nowait(output)
        self.admitted.set()
        self.speaking.set()


@dataclass(slots=True)
class _Running:
    job: Job
    choice: int
    arrived_s: float
    run: Run
    emitted: int = 0
    first_s: float = 0.0


class Engine:
    """Runs jobs in one batch and counts them in ``counts``. Belongs to one event loop."""

    def __init__(self, pace: Pace, seed: int, counts: EngineCounts) -> None:
        self._batch = Batch(pace, seed)
        self._counts = counts
        self._sequences: dict[int, _Running] = {}
        self._queue: deque[tuple[int, Run]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def batch(self) -> Batch:
        """To look at."""
        return self._batch

    @contextmanager
    def run(self, jobs: Sequence[Job]) -> Generator[Run]:
        """Runs jobs for as long as the block lasts; what hasn't ended by then is aborted."""
        run = Run()
        self._turn()
        now_s = asyncio.get_running_loop().time()
        numbers: list[int] = []
        for choice, job in enumerate(jobs):
            length = len(job.answer.pieces) if job.answer is not None else 1
            number = self._batch.submit(now_s, job.prompt_tokens, length)
            self._sequences[number] = _Running(job, choice, now_s, run)
            self._queue.append((number, run))
            numbers.append(number)
        self._schedule()
        try:
            yield run
        finally:
            self._abort([number for number in numbers if number in self._sequences])

    def abort_all(self) -> None:
        """Ends every job now, with the finish reason ``abort``."""
        sequences = dict(self._sequences)
        self._abort(list(sequences))
        for sequence in sequences.values():
            sequence.run.put(Output(sequence.choice, None, "abort"))

    def _abort(self, numbers: Sequence[int]) -> None:
        now_s = asyncio.get_running_loop().time()
        for number in numbers:
            del self._sequences[number]
            self._batch.abort(now_s, number)
        if numbers:
            self._schedule()

    def _schedule(self) -> None:
        while self._queue and not self._batch.is_waiting(self._queue[0][0]):
            self._queue.popleft()[1].admitted.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop, next_s = asyncio.get_running_loop(), self._batch.next_s()
        if next_s is not None:
            self._timer = loop.call_later(max(_TIMER_GRAIN_S, next_s - loop.time()), self._tick)

    def _tick(self) -> None:
        self._turn()
        self._schedule()

    def _turn(self) -> None:
        for token in self._batch.advance(asyncio.get_running_loop().time()):
            sequence = self._sequences[token.sequence]
            answer, piece = sequence.job.answer, None
            if sequence.emitted == 0:
                sequence.first_s = token.at_s
                self._counts.prompt_tokens += sequence.job.prompt_tokens
                self._counts.first_token.record(token.at_s - sequence.arrived_s)
            if answer is not None:
                piece = answer.pieces[sequence.emitted]
                self._counts.generation_tokens += 1
            sequence.emitted += 1
            finish = None
            queued_s, at_s = token.admitted_s - sequence.arrived_s, token.at_s - sequence.arrived_s
            if token.last:
                finish = answer.finish_reason if answer is not None else "stop"
                self._counts.finished[finish] += 1
                self._counts.queue.record(queued_s)
                self._counts.prefill_s += sequence.first_s - token.admitted_s
                self._counts.inference.record(at_s - queued_s)
                self._counts.duration.record(at_s)
                if sequence.emitted > 1:
                    self._counts.per_token.record((token.at_s - sequence.first_s) / (sequence.emitted - 1))
                del self._sequences[token.sequence]
            sequence.run.put(Output(sequence.choice, piece, finish, queued_s, at_s))
