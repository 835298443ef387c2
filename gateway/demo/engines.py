"""The demo's engines: started together, and stopped together however the block ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from .engine_kind import EngineKind
from .engine_process import EngineProcess
from .readiness import until_healthy


@asynccontextmanager
async def running(kind: EngineKind, count: int, log_folder: Path) -> AsyncGenerator[list[str]]:
    """Yields the base URLs of ``count`` engines that answer.

    Raises:
        EngineFailed: One of them did not start; the others are stopped again.
    """
    with ExitStack() as processes:
        engines: list[EngineProcess] = []
        for number in range(1, count + 1):
            log_path = log_folder / f"{kind.engine}-{number}.log"
            name = f"{kind.title} {number}"
            engines.append(processes.enter_context(EngineProcess(name, kind.module, kind.arguments, log_path)))
        processes.callback(_terminate, engines)  # all at once, before each is waited for
        yield [await until_healthy(engine, kind.start_s) for engine in engines]


def _terminate(engines: list[EngineProcess]) -> None:
    for engine in engines:
        engine.terminate()
