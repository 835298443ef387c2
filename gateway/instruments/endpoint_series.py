"""How finished attempts at one endpoint become numbers."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.types import Usage

from ..flight import AttemptRecord, FlightRecord
from .families import Families
from .gathered import Gathered
from .histogram import Distribution
from .metrics_text import Number


class EndpointSeries:
    """The series of one pool, model, endpoint and role, and what is to be counted there."""

    def __init__(self, families: Families, policy: str, pool: str, model: str, endpoint: str, role: str) -> None:
        self._families = families
        self._labels = (pool, model, endpoint, role)
        self.gaps: Distribution = families.gaps.at(model, endpoint, role)
        self._ttfts_s = Gathered(families.endpoint_ttft.at(model, endpoint, role))
        self._tpots_s = Gathered(families.tpot.at(model, endpoint, role))
        self._durations_s = Gathered(families.endpoint_duration.at(model, endpoint, role))
        self._output_tokens = families.output_tokens.at(model, endpoint)
        self._ok = families.attempts.at(pool, model, endpoint, role, "ok")
        self._attempts = self._failed = 0
        self._connect = families.connect.at(endpoint)
        self._choices = families.route_choices.at(pool, endpoint, policy)
        self._routes_s = Gathered(families.route_duration.at(pool))
        self._reported, self._estimated = (
            tuple(
                families.tokens.at(pool, model, endpoint, type, source)
                for type in ("input", "output", "cached_input", "reasoning")
            )
            for source in ("usage", "estimate")
        )
        self._answers: list[Usage] = []

    def attempted(self, attempt: AttemptRecord, record: FlightRecord, *, answered: bool) -> None:
        """Takes a finished attempt; ``answered`` if the request's answer is its, of which the record's usage tells."""
        self._attempts += 1
        if attempt.route_s is not None:
            self._routes_s.append(attempt.route_s)
        outcome = attempt.outcome
        if outcome != "ok":
            self._failed += 1
            self._families.attempts.at(*self._labels, outcome or "internal_error").add()
        sent_s, ended_s, first_s = attempt.sent_s, attempt.ended_s, attempt.first_output_s
        if sent_s is None or ended_s is None:
            return
        if not attempt.reused and attempt.connected_s is not None:
            self._connect.observe(attempt.connected_s - attempt.chosen_s)
        self._durations_s.append(ended_s - sent_s)
        if first_s is not None and outcome != "cancelled":  # a client that left may not have waited for it
            self._ttfts_s.append(first_s - sent_s)
            if record.keep_reason is not None:
                self._ttfts_s.exemplify(record)
        usage = record.usage
        if usage is None or not answered:
            return
        if outcome != "ok" or usage.estimated:
            _count_tokens(self._estimated if usage.estimated else self._reported, [usage])
            return
        self._answers.append(usage)
        if record.stream and not attempt.resumes and (tpot_s := record.tpot_s) is not None:
            self._tpots_s.append(tpot_s)

    def settle(self) -> None:
        """Counts what was taken since the last time."""
        self._choices.value += len(self._routes_s)
        self._ok.value += self._attempts - self._failed
        self._attempts = self._failed = 0
        self._routes_s.settle()
        self._durations_s.settle()
        self._ttfts_s.settle()
        self._tpots_s.settle()
        if self._answers:
            _count_tokens(self._reported, self._answers)
            self._output_tokens.observe_all([usage.completion_tokens for usage in self._answers])
            self._answers.clear()


def _count_tokens(numbers: Sequence[Number], answers: Sequence[Usage]) -> None:
    """Adds what the answers say to the numbers of input, output, cached input and reasoning."""
    for number, tokens in zip(numbers, zip(*answers, strict=True), strict=False):
        number.value += sum(filter(None, tokens))
