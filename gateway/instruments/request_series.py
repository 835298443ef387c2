"""How closed records of one kind become numbers."""

from __future__ import annotations

from bisect import bisect

from ..errors import EngineBusy, NoConnection, NoEndpoint, ShuttingDown
from ..flight import FlightRecord, Role
from .endpoint_series import EndpointSeries
from .families import PROMPT_LENGTHS, PROMPT_TOKENS, Families
from .gathered import Gathered
from .metrics_text import OTHER

_SHED_REASONS: dict[str | None, str] = {
    NoEndpoint.error_type: NoEndpoint.code,
    NoConnection.error_type: NoConnection.code,
    ShuttingDown.error_type: ShuttingDown.code,
}
"""By the error type of telemetry; any other is an engine's status."""


class RequestSeries:
    """The series of one pool, model, operation and outcome, and what is to be counted there.

    Attributes:
        endpoints: The series of such requests' attempts, by endpoint and role.
    """

    def __init__(self, families: Families, pool: str, model: str, operation: str, outcome: str | None) -> None:
        pool, model, outcome = pool or OTHER, model or OTHER, outcome or "internal_error"
        self._requests = families.requests.at(pool, model, operation, outcome)
        self._durations_s = Gathered(families.duration.at(pool, model, operation, outcome))
        self._shed = (
            {reason: families.shed.at(pool, model, reason) for reason in (*_SHED_REASONS.values(), EngineBusy.code)}
            if outcome == "shed"
            else None
        )
        self._queues_s = Gathered(families.queue.at(pool, model))
        self._overheads_s = Gathered(families.overhead.at(pool))
        self._ttfts_s = Gathered(families.ttft.at(pool, model))
        self._prompt_ttft, self._pool = families.prompt_ttft, pool
        self._prompt_ttfts_s: dict[int, Gathered] = {}
        self._longest_gaps_s = Gathered(families.longest_gap.at(pool, model))
        self._write_waits_s = Gathered(families.write_wait.at(pool))
        self.endpoints: dict[tuple[str, Role], EndpointSeries] = {}

    def ended(self, record: FlightRecord) -> None:
        """Takes a closed record."""
        duration_s, queue_s, ttft_s = record.durations_s()
        admitted_s = record.admitted_s
        self._durations_s.append(duration_s)
        if record.keep_reason is not None:
            self._durations_s.exemplify(record)
        if self._shed is not None:
            self._shed[_SHED_REASONS.get(record.error_type, EngineBusy.code)].value += 1
        if admitted_s is None or record.body_read_s is None:
            return
        self._queues_s.append(queue_s)
        sent_s = record.attempts[0].sent_s if record.attempts else None
        if sent_s is not None:
            self._overheads_s.append(sent_s - admitted_s if sent_s > admitted_s else 0.0)
        if ttft_s is not None:
            self._ttfts_s.append(ttft_s)
            self._by_prompt(record).append(ttft_s)
            self._longest_gaps_s.append(record.longest_gap_s)
            self._write_waits_s.append(record.client_write_wait_s)
            if record.keep_reason is not None:
                self._ttfts_s.exemplify(record)
                self._longest_gaps_s.exemplify(record)
        elif record.client_write_wait_s:  # of what is passed on
            self._write_waits_s.append(record.client_write_wait_s)

    def _by_prompt(self, record: FlightRecord) -> Gathered:
        length = bisect(PROMPT_TOKENS, record.prompt_tokens)
        ttfts_s = self._prompt_ttfts_s.get(length)
        if ttfts_s is None:
            series = self._prompt_ttft.at(self._pool, PROMPT_LENGTHS[length])
            ttfts_s = self._prompt_ttfts_s[length] = Gathered(series)
        return ttfts_s

    def settle(self) -> None:
        """Counts what was taken since the last time."""
        self._requests.value += len(self._durations_s)
        self._durations_s.settle()
        self._queues_s.settle()
        self._overheads_s.settle()
        self._ttfts_s.settle()
        for ttfts_s in self._prompt_ttfts_s.values():
            ttfts_s.settle()
        self._longest_gaps_s.settle()
        self._write_waits_s.settle()
