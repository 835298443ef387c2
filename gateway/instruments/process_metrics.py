"""Metrics of the process and of Python's collector: the library's collectors, for this process or for every worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from prometheus_client import CollectorRegistry, GCCollector, Metric, PlatformCollector, ProcessCollector
from prometheus_client import generate_latest as text
from prometheus_client.openmetrics import exposition
from prometheus_client.registry import Collector

from .exposition import END
from .worker_numbers import Living


class ProcessMetrics:
    """The library's part of the exposition.

    Args:
        living: The workers that live; None if there are none but this process.
    """

    def __init__(self, living: Callable[[], Sequence[Living]] | None) -> None:
        self._registry = CollectorRegistry()
        PlatformCollector(registry=self._registry)
        self._workers: _Workers | None = None
        if living is None:
            ProcessCollector(registry=self._registry)
            GCCollector(registry=self._registry)
        else:
            self._workers = _Workers(living)
            self._registry.register(self._workers)

    def pieces(self, *, openmetrics: bool) -> Iterator[str]:
        """Yields whole families, without an end mark, and an empty piece before each that takes long."""
        if self._workers is not None:
            for _ in self._workers.look():
                yield ""
        yield ""
        yield _openmetrics(self._registry).decode().removesuffix(END) if openmetrics else text(self._registry).decode()


_openmetrics = cast("Callable[[CollectorRegistry], bytes]", exposition.generate_latest)  # pyright: ignore[reportUnknownMemberType]


class _Workers(Collector):
    """What the kernel knows of each worker, with its number as a label: no sum of these would mean anything."""

    def __init__(self, living: Callable[[], Sequence[Living]]) -> None:
        self._living = living
        self._collectors: dict[Living, ProcessCollector] = {}
        self._families: dict[str, Metric] = {}

    def look(self) -> Iterator[Living]:
        """Asks the kernel about one worker after the other; yields before each."""
        living, last = self._living(), self._collectors
        self._collectors = {worker: last.get(worker) or _collector_of(worker.pid) for worker in living}
        families: dict[str, Metric] = {}
        for worker, collector in tuple(self._collectors.items()):
            yield worker
            for found in collector.collect():
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    family.add_sample(sample.name, {**sample.labels, "worker": str(worker.number)}, sample.value)
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns what the last look found."""
        return self._families.values()


def _collector_of(pid: int) -> ProcessCollector:
    return ProcessCollector(pid=lambda: pid, registry=None)
