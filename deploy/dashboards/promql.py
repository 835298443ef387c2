"""Queries that say the same thing in every panel: rates, quantiles, means and shares over Weir's metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WINDOW = "$__rate_interval"
RANGE = "$__range"

# What the variables of the dashboards select, by the labels that a family has.
CLIENT = 'pool=~"$pool",model=~"$model"'
POOL = 'pool=~"$pool"'
ENDPOINT = 'endpoint=~"$endpoint"'
POOL_ENDPOINT = f"{POOL},{ENDPOINT}"
ATTEMPT = f'model=~"$model",{ENDPOINT},role="primary"'
INSTANCE = 'instance=~"$instance"'

COUNTED = 'outcome!~"client_error|cancelled"'
"""Requests that speak for or against Weir and its engines: not the client's mistakes, nor those it gave up."""
FAILED = 'outcome!~"ok|client_error|cancelled"'


# How engines call the same thing. TGI has no time to the first token.
ENGINE_TTFT = (
    "vllm:time_to_first_token_seconds",
    "sglang:time_to_first_token_seconds",
    "lightllm_request_first_token_duration",
)
ENGINE_TPOT = (
    "vllm:request_time_per_output_token_seconds",
    "tgi_request_mean_time_per_token_duration",
    "lightllm_request_mean_time_per_token_duration",
)
ENGINE_QUEUE = ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "tgi_request_queue_duration")
ENGINE_TOKENS = ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "lightllm_generation_tokens_total")


def rate(counter: str, selector: str, *by: str, window: str = WINDOW) -> str:
    """Returns how often it is counted, in a second."""
    return f"sum{_by(by)} (rate({counter}{{{selector}}}[{window}]))"


def quantile(q: float, histogram: str, selector: str, *by: str) -> str:
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', selector, 'le', *by)})"


def mean(histogram: str, selector: str, *by: str) -> str:
    return f"{rate(f'{histogram}_sum', selector, *by)} / {rate(f'{histogram}_count', selector, *by)}"


def buckets(histogram: str, selector: str) -> str:
    """Returns the rows of a heat map."""
    return f"sum by (le) (increase({histogram}_bucket{{{selector}}}[{WINDOW}]))"


def share(counter: str, part: str, whole: str, *by: str, window: str = WINDOW) -> str:
    """Returns how much of the whole the part is: 0, not nothing, while none of it has ever been counted."""
    all_of_it = rate(counter, whole, *by, window=window)
    return f"({rate(counter, part, *by, window=window)} or {all_of_it} * 0) / {all_of_it}"


def share_within(histogram: str, edge: str, selector: str, *by: str, window: str = WINDOW) -> str:
    """Returns the share of values not above a bucket's edge."""
    below = rate(f"{histogram}_bucket", f'{selector},le="{edge}"', *by, window=window)
    return f"{below} / {rate(f'{histogram}_count', selector, *by, window=window)}"


def engine_rate(names: Sequence[str], suffix: str, *by: str) -> str:
    """Returns the rate of whichever of these metrics there is: engines name theirs differently."""
    pattern = "|".join(f"{name}{suffix}" for name in names)
    return f'sum{_by(by)} (rate({{__name__=~"{pattern}",{ENDPOINT}}}[{WINDOW}]))'


def engine_quantile(q: float, histograms: Sequence[str], *by: str) -> str:
    """Returns the quantile of what engines measure themselves."""
    return f"histogram_quantile({q}, {engine_rate(histograms, '_bucket', 'le', *by)})"


def engine_mean(histograms: Sequence[str], *by: str) -> str:
    """Returns the mean of what engines measure themselves."""
    return f"{engine_rate(histograms, '_sum', *by)} / {engine_rate(histograms, '_count', *by)}"


def _by(labels: Iterable[str]) -> str:
    named = ", ".join(labels)
    return f" by ({named})" if named else ""
