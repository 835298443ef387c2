"""Names of the GenAI conventions (1.41) for numbers that Weir has anyway; nothing is recorded for them.

What the numbers do not tell apart gets no label: TTFT and time per token are not kept by operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add

from ..fleet import Fleet
from . import exposition
from .histogram import DURATION, GAP, TOKENS, TTFT
from .metrics_text import CounterFamily, HistogramFamily, Labels

SEVERAL = "weir"
"""The provider of a pool whose endpoints do not all speak the same dialect."""

_NO_ERRORS = frozenset(("ok", "cancelled"))  # that a client leaves is no error to these conventions

_MODEL, _PROVIDER = "gen_ai_request_model", "gen_ai_provider_name"
_OPERATION, _ERROR, _TOKEN_TYPE = "gen_ai_operation_name", "error_type", "gen_ai_token_type"


class GenAiView:
    """Four families made of Weir's own.

    Args:
        fleet: Tells the engine of each endpoint.
        ttft: By pool and model.
        tpot: By model, endpoint and role.
        duration: By pool, model, operation and outcome.
        output_tokens: By model and endpoint.
        tokens: By pool, model, endpoint, type and source.
    """

    def __init__(
        self,
        fleet: Fleet,
        ttft: HistogramFamily,
        tpot: HistogramFamily,
        duration: HistogramFamily,
        output_tokens: HistogramFamily,
        tokens: CounterFamily,
    ) -> None:
        self._fleet = fleet
        self._ttft = ttft
        self._tpot = tpot
        self._duration = duration
        self._output_tokens = output_tokens
        self._tokens = tokens

    def lines(self, *, openmetrics: bool) -> Iterator[str]:
        """Yields the text, in pieces of whole lines."""
        of_pool = {name: _one_of({e.adapter.name for e in pool.endpoints.values()})
                   for name, pool in self._fleet.pools.items()}  # fmt: skip
        of_endpoint = {e.id: e.adapter.name for pool in self._fleet.pools.values() for e in pool.endpoints.values()}

        view = _View("gen_ai_server_time_to_first_token_seconds", "See weir_time_to_first_token_seconds.", TTFT)
        for (pool, model), counts, sum in self._ttft.totals():
            view.add(((_MODEL, model), (_PROVIDER, of_pool.get(pool, SEVERAL))), counts, sum)
        yield from view.lines(openmetrics=openmetrics)

        view = _View("gen_ai_server_time_per_output_token_seconds", "See weir_time_per_output_token_seconds.", GAP)
        for (model, endpoint, _), counts, sum in self._tpot.totals():
            view.add(((_MODEL, model), (_PROVIDER, of_endpoint.get(endpoint, SEVERAL))), counts, sum)
        yield from view.lines(openmetrics=openmetrics)

        view = _View("gen_ai_server_request_duration_seconds", "See weir_request_duration_seconds.", DURATION)
        for (pool, model, operation, outcome), counts, sum in self._duration.totals():
            error = () if outcome in _NO_ERRORS else ((_ERROR, outcome),)
            labels = ((_MODEL, model), (_PROVIDER, of_pool.get(pool, SEVERAL)), (_OPERATION, operation), *error)
            view.add(labels, counts, sum)
        yield from view.lines(openmetrics=openmetrics)

        help = "See weir_output_tokens_per_request; of input tokens only the sum is known, over the same answers."
        view = _View("gen_ai_client_token_usage", help, TOKENS)
        inputs = {(model, e): n for (_, model, e, type, source), n in self._tokens.totals()
                  if (type, source) == ("input", "usage")}  # fmt: skip
        only_sum = _View("gen_ai_client_token_usage", help, ())
        for (model, endpoint), counts, sum in self._output_tokens.totals():
            labels = ((_MODEL, model), (_PROVIDER, of_endpoint.get(endpoint, SEVERAL)))
            view.add((*labels, (_TOKEN_TYPE, "output")), counts, sum)
            only_sum.add((*labels, (_TOKEN_TYPE, "input")), [_count(counts)], inputs.get((model, endpoint), 0.0))
        yield from view.lines(openmetrics=openmetrics)
        yield from only_sum.samples()


class _View:
    """One family: series with the same labels are added up."""

    def __init__(self, name: str, help: str, edges: tuple[float, ...]) -> None:
        self._name = name
        self._help = help
        self._edges = edges
        self._series: dict[tuple[tuple[str, str], ...], tuple[Sequence[float], float]] = {}

    def add(self, labels: tuple[tuple[str, str], ...], counts: Sequence[float], sum: float) -> None:
        found = self._series.get(labels)
        if found is not None:
            counts, sum = list(map(add, found[0], counts)), found[1] + sum
        self._series[labels] = (counts, sum)

    def lines(self, *, openmetrics: bool) -> Iterator[str]:
        yield exposition.head(self._name, self._help, "histogram", openmetrics=openmetrics)
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        for labels, (counts, sum) in self._series.items():
            names: Labels = tuple(name for name, _ in labels)
            values: Labels = tuple(value for _, value in labels)
            yield exposition.histogram(exposition.histogram_text(self._name, names, values, self._edges), counts, sum)


def _one_of(engines: set[str]) -> str:
    return next(iter(engines)) if len(engines) == 1 else SEVERAL


def _count(counts: Sequence[float]) -> float:
    total = 0.0
    for count in counts:
        total += count
    return total
