"""``weir engine``: serves one simulated engine until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import uvicorn

from gateway.commands.arguments import duration_s, port, whole
from gateway.simulator.batching import Pace
from gateway.simulator.closing_protocol import ClosingProtocol
from gateway.simulator.dialects import DIALECTS
from gateway.simulator.server import Settings, SimulatedEngine

_SHUTDOWN_S = 5  # for clients that read slowly; running answers are ended at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``weir engine``."""
    pace = Pace()
    add = parser.add_argument
    add("--port", type=port, required=True, help="port to listen on; 0 takes a free one and prints it")
    add("--dialect", choices=tuple(DIALECTS), default="vllm", help="whose wire format it speaks (%(default)s)")
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--model", action="append", metavar="NAME", help="a name it answers to; may be repeated (simulated)")
    add("--ttft", type=duration_s, default=pace.ttft_s, help="fixed time before the prefill of a request (50ms)")
    add("--itl", type=duration_s, default=pace.itl_s, help="time between two tokens (20ms)")
    add("--slots", type=whole(1, 100_000), default=pace.slots, help="most requests in the batch (%(default)s)")
    add("--max-queue", type=whole(0, 10**6), help="most requests that wait for a slot; more are refused (no limit)")
    add("--prefill-rate", type=whole(1, 10**9), default=4000, help="prompt tokens a second (%(default)s)")
    add("--batch-knee", type=whole(1, 100_000), help="batch size above which decoding slows down (as --slots)")
    add("--context", type=whole(16, 10**7), default=8192, help="most tokens of prompt and answer (%(default)s)")
    add("--seed", type=whole(0, 2**63), default=0, help="of the jitter (%(default)s)")
    add("--jitter", type=_share, default=0.0, help="share by which steps differ in length, 0 to 0.9 (%(default)s)")


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Turns parsed options into settings."""
    models: list[str] = arguments.model or ["simulated"]
    pace = Pace(
        ttft_s=arguments.ttft,
        itl_s=arguments.itl,
        slots=arguments.slots,
        prefill_tokens_per_s=float(arguments.prefill_rate),
        batch_knee=arguments.batch_knee or arguments.slots,
        jitter_ratio=arguments.jitter,
    )
    return Settings(
        dialect=arguments.dialect,
        models=tuple(models),
        pace=pace,
        context_tokens=arguments.context,
        max_queue=arguments.max_queue,
        seed=arguments.seed,
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM. Returns the exit status: 1 if the port could not be had, 2 for a wrong option."""
    settings = settings_from(arguments)
    if settings.max_queue is not None and not DIALECTS[settings.dialect].has_queue_limit:
        print(f"weir engine: the queue of {settings.dialect} has no limit; leave out --max-queue", file=sys.stderr)
        return 2
    host, port = str(arguments.host), int(arguments.port)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        print(f"weir engine: cannot listen on {host}:{port} ({error.strerror}); choose another --port", file=sys.stderr)
        return 1
    with listener:
        port = int(listener.getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        said = f"{settings.dialect} dialect, model {', '.join(settings.models)}"
        print(f"Simulated engine on http://{shown}:{port} ({said})", flush=True)
        _Server(SimulatedEngine(settings)).run(sockets=[listener])
    return 0


class _Server(uvicorn.Server):
    """Ends answers as an engine does when it stops, and exits with status 0 (uvicorn raises the signal again)."""

    def __init__(self, engine: SimulatedEngine) -> None:
        super().__init__(
            uvicorn.Config(
                engine,
                loop="uvloop",
                http=ClosingProtocol,
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_S,
            )
        )
        self._engine = engine

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        self._engine.abort_all()
        await super().shutdown(list(sockets) if sockets is not None else None)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 0.9:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0 to 0.9")
    return share
