"""``weir demo``: two small engines and Weir in front of them, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from ..demo import engine_kind, engines
from ..demo.engine_kind import EngineKind
from ..demo.engine_process import EngineFailed
from ..demo.guide import guide
from ..demo.installation import NotInstalled, find_model
from ..demo.listening import HOST, CannotListen, configuration, listen
from ..demo.progress import Progress
from ..demo.sample import QUESTION, SampleFailed, stream_answer
from ..stopping import stop_signals
from ..tuning import Collections
from .arguments import port
from .serve import set_up_logging

ENGINES = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=8080, help="Weir's port (8080); if in use, the next free one")
    parser.add_argument("--simulated", action="store_true", help="take simulated engines even if the real one is here")
    parser.add_argument("--once", action="store_true", help="stop after the first answer")


def run(args: argparse.Namespace) -> int:
    """Serves until a signal asks it to stop. Returns the exit status: 1 if it could not start or answer."""
    return uvloop.run(_until_told_to_stop(args))


async def _until_told_to_stop(args: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    set_up_logging("warning")
    progress = Progress(sys.stdout)
    with TemporaryDirectory(prefix="weir-demo-") as folder:
        try:
            return await _demo(args, progress, Path(folder))
        except asyncio.CancelledError:
            progress.say("\nStopped.")
            return 0
        except EngineFailed as error:
            print(f"weir demo: {_told(error)}", file=sys.stderr)
        except (CannotListen, SampleFailed) as error:
            print(f"weir demo: {error}", file=sys.stderr)
        return 1


async def _demo(args: argparse.Namespace, progress: Progress, folder: Path) -> int:
    async with AsyncExitStack() as started:
        kind, urls = await _start_engines(started, progress, folder, simulated=args.simulated)
        access_out = started.enter_context((folder / "requests.jsonl").open("wb"))
        weir = await listen(configuration(kind, urls), args.port, access_out, progress.say)
        started.push_async_callback(weir.stop)
        origin = f"http://{HOST}:{weir.port}"
        progress.say(f"\n> {QUESTION}\n")
        timing = await stream_answer(f"{origin}/v1", kind.model, progress.write)
        progress.say(f"\n\n{timing}\n")
        progress.say(guide(origin, kind.model, ENGINES, str(folder)))
        if not args.once:
            progress.say("Ctrl-C stops everything.")
            Collections(weir.app.fleet.in_flight)
            await weir.wait()
    return 0


async def _start_engines(
    started: AsyncExitStack, progress: Progress, folder: Path, *, simulated: bool
) -> tuple[EngineKind, list[str]]:
    """Starts the engines that can be had, real ones before simulated ones; ``started`` stops them.

    Raises:
        EngineFailed: Not even the simulated ones start.
    """

    async def start(kind: EngineKind) -> tuple[EngineKind, list[str]]:
        async with progress.step(f"Starting {ENGINES} engines ({kind.title}, {kind.model})"):
            return kind, await started.enter_async_context(engines.running(kind, ENGINES, folder))

    if not simulated:
        try:
            async with progress.step("Checking the engine and the model"):
                model_path = await asyncio.to_thread(find_model)
            return await start(engine_kind.llamacpp(model_path, ENGINES))
        except (NotInstalled, EngineFailed) as error:
            progress.say(f"The real engine cannot be used, so the demo takes the simulated one: {_told(error)}")
    return await start(engine_kind.simulated())


def _told(error: NotInstalled | EngineFailed) -> str:
    """Returns the reason and, of an engine that was started, the end of its log."""
    if isinstance(error, EngineFailed) and error.log_tail:
        return "\n".join((f"{error}. Its log ends:", *(f"  | {line}" for line in error.log_tail)))
    return str(error)
