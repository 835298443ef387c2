"""What every test gets: a deadline, and no proxy of this machine's between it and 127.0.0.1. Real engines if asked."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack
from typing import Any

import pytest

from gateway.demo.engine_process import EngineProcess
from gateway.demo.installation import NotInstalled
from gateway.demo.readiness import until_healthy
from tests.live import real_engine
from tests.live.real_engine import RealEngines

DEADLINE_S = 150.0 * real_engine.PATIENCE


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def no_state_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where ``weir serve`` keeps its flight records by itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture(scope="session")
def real_engines(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealEngines]:
    """The same for all tests, as some take a minute to start."""
    try:
        kind = real_engine.chosen()
    except NotInstalled as error:
        pytest.skip(str(error))
    logs = tmp_path_factory.mktemp("engines")
    with ExitStack() as started:
        engines = [
            started.enter_context(
                EngineProcess(f"engine {number}", kind.module, kind.arguments, logs / f"{number}.log")
            )
            for number in range(real_engine.ENGINES)
        ]
        urls = [asyncio.run(until_healthy(engine, kind.start_s)) for engine in engines]
        yield RealEngines(kind, tuple(urls))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts a deadline on every coroutine test, so that a hang is a failure with a traceback."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("deadline")
            item.obj = _with_deadline(item.obj, DEADLINE_S if marker is None else marker.args[0])
    # They take seconds each, most others milliseconds: begun last, they would run alone in the end.
    items.sort(key=lambda item: item.get_closest_marker("clients") is None)


def _with_deadline(test: Callable[..., Awaitable[None]], deadline_s: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(deadline_s):
            await test(*args, **kwargs)

    return bounded
