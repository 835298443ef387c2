"""``weir serve``: serves what a file says, or the engines found on well-known local ports."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys

import uvloop

from . import server
from .config import Config
from .config.file import load
from .config.problems import ConfigError
from .discovery import discover
from .tuning import freeze_start_up_objects

log = logging.getLogger("weir")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", help="configuration; without it, engines are looked for")
    parser.add_argument("--listen", metavar="HOST:PORT", help="instead of the configuration's, or of 127.0.0.1:8080")


def run(args: argparse.Namespace) -> int:
    return uvloop.run(_serve(args.config, args.listen))


async def _serve(path: str | None, listen: str | None) -> int:
    try:
        config = load(path) if path else await discover(listen or "127.0.0.1:8080")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if listen:
        config = config.model_copy(update={"listen": listen})
    set_up_logging(config.log.level)
    return await serve_until_signal(config)


async def serve_until_signal(config: Config) -> int:
    """Serves until SIGINT or SIGTERM. Returns the exit status."""
    try:
        running = await server.start(config)
    except OSError as error:
        print(
            f"cannot listen on {config.listen}: {os.strerror(error.errno or 0)}; "
            "choose another address with --listen or the key listen",
            file=sys.stderr,
        )
        return 1
    log.info("serving %s on http://%s", ", ".join(config.pools), config.listen)
    freeze_start_up_objects()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    log.info("stopping: running requests may end within %g s", config.shutdown.drain_s)
    await running.stop()
    return 0


def set_up_logging(level: str) -> None:
    """Sends the log to standard error; requests' own lines go to standard output."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    for noisy in ("httpx2", "httpcore2", "asyncio", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
