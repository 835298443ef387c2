"""How busy an engine says that it is: what to ask it, and what its answer means.

| engine | where | form |
| --- | --- | --- |
| vLLM, TGI, LMDeploy | /metrics | Prometheus text |
| LightLLM | /metrics, and for its cache /token_load | text, JSON |
| SGLang | /v1/loads; in releases without it /metrics, off by default | JSON, text |
| llama.cpp | /metrics, off by default; else /slots, which does not tell the queue | text, JSON |

An engine without a line in ``_SOURCES`` tells no load. Ollama says only which models it holds; what TensorRT-LLM tells
at /metrics are statistics of iterations, and its Prometheus text is off by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from .failures import AdapterError
from .json_values import as_list, as_object, objects, read_json
from .prometheus_text import series

MOST_REQUESTS = 1_000_000_000
"""More are no count."""
JSON_BYTES = 262_144
"""The longest JSON that is read: hundreds of slots or ranks."""

Figure = Literal["running", "waiting", "kv_usage_ratio"]
_ALL: tuple[Figure, ...] = ("running", "waiting", "kv_usage_ratio")


class EngineLoad(NamedTuple):
    """An engine's own figures; None where it tells none, or one that is negative, not finite or out of range.

    Several series, as of data-parallel ranks or models, are one load. Requests are added up, and one unknown addend
    makes the sum unknown. Of the caches the fullest counts: its rank lets requests wait or preempts them, however empty
    the others are.

    Attributes:
        running: Requests that it works on.
        waiting: Requests in its queue.
        kv_usage_ratio: Share of its KV cache that is in use, 0 to 1.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None

    def completed_by(self, other: EngineLoad) -> EngineLoad:
        """Returns this load; what it does not tell is taken from ``other``."""
        return EngineLoad(
            other.running if self.running is None else self.running,
            other.waiting if self.waiting is None else self.waiting,
            other.kv_usage_ratio if self.kv_usage_ratio is None else self.kv_usage_ratio,
        )


UNKNOWN = EngineLoad()


class LoadSource(NamedTuple):
    """One question about an engine's load.

    Attributes:
        path: What to GET, below the engine's base URL.
        read: Turns the body of a 200 into a load; ``AdapterError`` if it is no such answer.
        tells: What the answer may tell.
    """

    path: str
    read: Callable[[bytes], EngineLoad]
    tells: tuple[Figure, ...] = _ALL

    def adds_to(self, load: EngineLoad) -> bool:
        """Whether it may tell what ``load`` does not."""
        return any(getattr(load, figure) is None for figure in self.tells)


def load_sources(engine: str) -> tuple[LoadSource, ...]:
    """Returns what to ask an engine, the best first; nothing if it does not tell its load."""
    return _SOURCES.get(engine, ())


def promised(engine: str) -> frozenset[Figure]:
    """Returns what an engine tells that is started so as to tell all it can, in a release of today."""
    told: set[Figure] = {figure for source in load_sources(engine) for figure in source.tells}
    return frozenset(told.difference(_OLD_ONLY.get(engine, ())))


def _text(running: bytes, waiting: bytes, kv_usage_ratio: tuple[bytes, ...], body: bytes) -> EngineLoad:
    """Of the cache's names, the newest first, the first one that there is counts."""
    used: list[float] = []
    for name in kv_usage_ratio:
        used = used or series(body, name)
    return EngineLoad(_requests(series(body, running)), _requests(series(body, waiting)), _fullest(used))


def _metrics(prefix: bytes, running: bytes, waiting: bytes, *kv_usage_ratio: bytes) -> LoadSource:
    kv_names = tuple([prefix + name for name in kv_usage_ratio])
    read = partial(_text, prefix + running, prefix + waiting, kv_names)
    return LoadSource("/metrics", read, _ALL if kv_names else ("running", "waiting"))


def _tgi(body: bytes) -> EngineLoad:
    """Nearest to its cache's use are the tokens that the batch may grow to, as a share of those that one may have."""
    promised = _sum(series(body, b"tgi_batch_current_max_tokens"))
    most = _sum(series(body, b"tgi_batch_max_total_tokens"))
    ratio = min(promised / most, 1.0) if promised is not None and most else None
    return _text(b"tgi_batch_current_size", b"tgi_queue_size", (), body)._replace(kv_usage_ratio=ratio)


def _token_load(body: bytes) -> EngineLoad:
    """``{"current_load": 0.41, ...}``; a list of them with data parallelism."""
    told = (as_object(_json(body)) or {}).get("current_load")
    if told is None:
        raise AdapterError("the answer has no current_load")
    ranks = as_list(told)
    return EngineLoad(kv_usage_ratio=_fullest([told] if ranks is None else ranks))


def _loads(body: bytes) -> EngineLoad:
    """``{"loads": [{"num_running_reqs": 3, "num_waiting_reqs": 0, "token_usage": 0.4, ...}, ...]}``, one a rank."""
    ranks = objects((as_object(_json(body)) or {}).get("loads"))
    if not ranks:
        raise AdapterError("the answer has no loads")
    running, waiting = ([rank.get(key) for rank in ranks] for key in ("num_running_reqs", "num_waiting_reqs"))
    return EngineLoad(_requests(running), _requests(waiting), _fullest(rank.get("token_usage") for rank in ranks))


def _slots(body: bytes) -> EngineLoad:
    """``[{"id": 0, "is_processing": false, ...}, ...]``."""
    slots = objects(_json(body))
    if not slots:
        raise AdapterError("the answer has no slots")
    return EngineLoad(running=sum(slot.get("is_processing") is True for slot in slots))


def _json(body: bytes) -> Any:
    if len(body) > JSON_BYTES:
        raise AdapterError("the answer is too long")
    try:
        return read_json(body)
    except ValueError:
        raise AdapterError("the answer is no JSON") from None


def _requests(values: Iterable[Any]) -> int | None:
    total = _sum(values)
    return round(total) if total is not None and total <= MOST_REQUESTS else None


def _sum(values: Iterable[Any]) -> float | None:
    known = _known(values)
    return sum(known) if known else None


def _fullest(values: Iterable[Any]) -> float | None:
    known = _known(values)
    most = max(known, default=None)
    return most if most is not None and most <= 1.0 else None


def _known(values: Iterable[Any]) -> list[float]:
    """The values if all are finite numbers and none is negative, else none."""
    numbers: list[float] = []
    for value in values:
        # Compared before it is converted: JSON has integers too large for a float
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e300:
            return []
        numbers.append(float(value))
    return numbers


_SOURCES: Mapping[str, tuple[LoadSource, ...]] = {
    # The cache had the second name up to 0.11, and both for a while
    "vllm": (
        _metrics(
            b"vllm:", b"num_requests_running", b"num_requests_waiting", b"kv_cache_usage_perc", b"gpu_cache_usage_perc"
        ),
    ),
    "sglang": (
        LoadSource("/v1/loads?include=core", _loads),
        _metrics(b"sglang:", b"num_running_reqs", b"num_queue_reqs", b"token_usage"),
    ),
    # Only old ones tell of the cache
    "llamacpp": (
        _metrics(b"llamacpp:", b"requests_processing", b"requests_deferred", b"kv_cache_usage_ratio"),
        LoadSource("/slots", _slots, ("running",)),
    ),
    "tgi": (LoadSource("/metrics", _tgi),),
    "lightllm": (
        _metrics(b"lightllm_", b"batch_current_size", b"queue_size"),
        LoadSource("/token_load", _token_load, ("kv_usage_ratio",)),
    ),
    "lmdeploy": (_metrics(b"lmdeploy:", b"num_requests_running", b"num_requests_waiting", b"gpu_cache_usage_perc"),),
}
_OLD_ONLY: Mapping[str, tuple[Figure, ...]] = {"llamacpp": ("kv_usage_ratio",)}
