"""The engine's counts and their Prometheus text, under vLLM's names."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from gateway.simulator.text import FinishReason

_TTFT_EDGES_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True)
class EngineCounts:
    """What the engine has done since it started."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: Counter[FinishReason] = field(default_factory=Counter[FinishReason])
    ttft_buckets: list[int] = field(default_factory=lambda: [0] * (len(_TTFT_EDGES_S) + 1))
    ttft_sum_s: float = 0.0

    def record_ttft(self, seconds: float) -> None:
        """Adds one time to first token, from the arrival of the request."""
        self.ttft_buckets[bisect_left(_TTFT_EDGES_S, seconds)] += 1
        self.ttft_sum_s += seconds


def render(model: str, counts: EngineCounts, *, running: int, waiting: int, kv_usage_ratio: float) -> bytes:
    """Returns the text of /metrics. ``model`` becomes the label ``model_name``."""
    name = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    labels = f'engine="0",model_name="{name}"'
    lines: list[str] = []

    def metric(short: str, kind: str, text: str, *samples: tuple[str, str, float]) -> None:
        lines.append(f"# HELP vllm:{short} {text}")
        lines.append(f"# TYPE vllm:{short} {kind}")
        lines.extend(f"vllm:{short}{suffix}{{{labels}{more}}} {value}" for suffix, more, value in samples)

    metric("num_requests_running", "gauge", "Requests that hold a slot.", ("", "", float(running)))
    metric("num_requests_waiting", "gauge", "Requests in the queue.", ("", "", float(waiting)))
    metric("kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", ("", "", kv_usage_ratio))
    metric("prompt_tokens_total", "counter", "Prompt tokens processed.", ("", "", float(counts.prompt_tokens)))
    metric("generation_tokens_total", "counter", "Tokens generated.", ("", "", float(counts.generation_tokens)))
    finished = {str(reason): number for reason, number in counts.finished.items()}
    samples = [("", f',finished_reason="{reason}"', float(finished.get(reason, 0))) for reason in _FINISH_REASONS]
    metric("request_success_total", "counter", "Requests finished.", *samples)
    below, buckets = 0, list[tuple[str, str, float]]()
    for edge, number in zip((*map(str, _TTFT_EDGES_S), "+Inf"), counts.ttft_buckets, strict=True):
        below += number
        buckets.append(("_bucket", f',le="{edge}"', float(below)))
    total = [("_sum", "", counts.ttft_sum_s), ("_count", "", float(below))]
    metric("time_to_first_token_seconds", "histogram", "From arrival to the first token.", *buckets, *total)
    return ("\n".join(lines) + "\n").encode()
