"""``weir serve``: serves what a file says, or the engines found on well-known local ports."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import uvloop

from . import server
from .config import Config
from .config.file import load
from .config.problems import ConfigError
from .config.values import address
from .discovery import discover
from .server import CannotListen, RunningServer
from .tuning import Collections

log = logging.getLogger("weir")

_STOPPING = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", help="configuration; without it, engines are looked for")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        help="instead of the configuration's, or of 127.0.0.1:8080",
    )


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
    except CannotListen as error:
        option = " with --listen or" if error.key == "listen" else " with"
        print(
            f"cannot listen on {error.address}: {error.strerror}; choose another address{option} the key {error.key}",
            file=sys.stderr,
        )
        return 1
    signals = _Signals(running)
    Collections(running.app.fleet.in_flight)
    log.info("serving %s on http://%s", ", ".join(config.pools), _taken(config.listen, running.port))
    if config.admin.listen is not None and running.admin_port is not None:
        log.info("operators find /metrics and /weir/* on http://%s", _taken(config.admin.listen, running.admin_port))
    await signals.stop.wait()
    log.info("stopping: running requests may end within %g s; a second signal ends them", config.shutdown.drain_s)
    await running.stop()
    return 0


class _Signals:
    """SIGINT and SIGTERM: the first asks to stop, the second not to wait, a third ends the process as ever.

    Attributes:
        stop: Set by the first.
    """

    def __init__(self, running: RunningServer) -> None:
        self.stop = asyncio.Event()
        self._running = running
        for number in _STOPPING:
            asyncio.get_running_loop().add_signal_handler(number, self._came)

    def _came(self) -> None:
        if not self.stop.is_set():
            self.stop.set()
            return
        for number in _STOPPING:
            asyncio.get_running_loop().remove_signal_handler(number)
        log.warning("stopping at once: running requests are ended")
        self._running.hurry()


def _address(text: str) -> str:
    try:
        return address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _taken(listen: str, port: int) -> str:
    """Returns the address with the port that was really taken."""
    return f"{listen.rpartition(':')[0]}:{port}"


def set_up_logging(level: str) -> None:
    """Sends the log to standard error; requests' own lines go to standard output."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    for noisy in ("httpx2", "httpcore2", "asyncio", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
