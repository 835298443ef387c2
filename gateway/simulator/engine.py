"""The time model tied to the event loop's clock: answers go in, their tokens come out when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.simulator.batching import Batch, Pace
from gateway.simulator.metrics_text import EngineCounts, render
from gateway.simulator.text import Answer
from gateway.simulator.wire import Output

_TIMER_GRAIN_S = 0.001  # uvloop rounds timers to milliseconds; a shorter one would fire early and spin


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence to run: a prompt and its answer, or a prompt only (an embedding)."""

    prompt_tokens: int
    answer: Answer | None


@dataclass(slots=True)
class _Running:
    job: Job
    choice: int
    arrived_s: float
    outputs: asyncio.Queue[Output]
    emitted: int = 0


class Engine:
    """Runs jobs in one batch and counts them. Belongs to one event loop."""

    def __init__(self, pace: Pace, seed: int, kv_tokens: int) -> None:
        self._batch = Batch(pace, seed)
        self._kv_tokens = kv_tokens
        self._counts = EngineCounts()
        self._sequences: dict[int, _Running] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def run(self, jobs: Sequence[Job]) -> Generator[asyncio.Queue[Output]]:
        """Runs jobs for as long as the block lasts; what hasn't ended by then is aborted.

        Every job ends with one output that has a finish reason. Choices are numbered as the jobs are.
        """
        outputs: asyncio.Queue[Output] = asyncio.Queue()
        self._turn()
        now_s = asyncio.get_running_loop().time()
        numbers: list[int] = []
        for choice, job in enumerate(jobs):
            length = len(job.answer.pieces) if job.answer is not None else 1
            number = self._batch.submit(now_s, job.prompt_tokens, length)
            self._sequences[number] = _Running(job, choice, now_s, outputs)
            numbers.append(number)
        self._schedule()
        try:
            yield outputs
        finally:
            self._abort([number for number in numbers if number in self._sequences])

    def abort_all(self) -> None:
        """Ends every job now, with the finish reason ``abort``."""
        sequences = dict(self._sequences)
        self._abort(list(sequences))
        for sequence in sequences.values():
            sequence.outputs.put_nowait(Output(sequence.choice, None, "abort"))

    def metrics(self, model: str) -> bytes:
        """Returns the Prometheus text."""
        batch, kv_usage_ratio = self._batch, self._batch.cached_tokens / self._kv_tokens
        return render(model, self._counts, running=batch.running, waiting=batch.waiting, kv_usage_ratio=kv_usage_ratio)

    def _abort(self, numbers: Sequence[int]) -> None:
        now_s = asyncio.get_running_loop().time()
        for number in numbers:
            del self._sequences[number]
            self._batch.abort(now_s, number)
        if numbers:
            self._schedule()

    def _schedule(self) -> None:
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
                self._counts.prompt_tokens += sequence.job.prompt_tokens
                self._counts.record_ttft(token.at_s - sequence.arrived_s)
            if answer is not None:
                piece = answer.pieces[sequence.emitted]
                self._counts.generation_tokens += 1
            sequence.emitted += 1
            finish = None
            if token.last:
                finish = answer.finish_reason if answer is not None else "stop"
                self._counts.finished["stop" if finish == "tool_calls" else finish] += 1
                del self._sequences[token.sequence]
            sequence.outputs.put_nowait(Output(sequence.choice, piece, finish))
