"""``weir serve``: serves what a file says, or the engines found on well-known local ports."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

import uvloop

from .. import server
from ..config import Config
from ..config.file import DEFAULT_FILE, load
from ..config.models import DEFAULT_LISTEN
from ..config.problems import ConfigError
from ..config.values import address
from ..instruments.numbers_folder import CannotUseFolder
from ..open_files import allow_many_files
from ..probing.discovery import discover
from ..server import CannotListen
from ..stopping import Stopping
from ..tuning import Collections
from ..workers.command import supervise
from .arguments import whole

log = logging.getLogger("weir")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help="configuration; without it, engines are looked for, whatever files there are",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        help=f"instead of the configuration's, or of {DEFAULT_LISTEN}",
    )
    parser.add_argument(
        "--workers", metavar="N", type=whole(1), default=1, help="processes that serve; one for each core, at most"
    )


def run(args: argparse.Namespace) -> int:
    allow_many_files()
    if not args.config and Path(DEFAULT_FILE).exists():
        told = f"{DEFAULT_FILE} in this folder is not used: weir serve -c {DEFAULT_FILE} serves what it says"
        print(told, file=sys.stderr)
    if args.workers == 1:
        return uvloop.run(_serve(args.config, args.listen))
    config = uvloop.run(_configured(args.config, args.listen, args.workers))
    if config is None:
        return 1
    cores = os.cpu_count() or 1
    if args.workers > cores:
        log.warning("%d workers for %d cores: those above one for each core only take memory", args.workers, cores)
    try:
        return supervise(config, args.workers, lambda bound: _tell_serving(bound, args.workers))
    except CannotListen as error:
        return _tell(error)
    except CannotUseFolder as error:
        print(error, file=sys.stderr)
        return 1


async def _serve(path: str | None, listen: str | None) -> int:
    config = await _configured(path, listen)
    return 1 if config is None else await serve_until_signal(config)


async def _configured(path: str | None, listen: str | None, workers: int = 1) -> Config | None:
    """Returns the configuration; None if it was told what is wrong with it."""
    try:
        config = load(path) if path else await discover(listen or DEFAULT_LISTEN)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None
    if listen:
        if config.admin.listens_at(listen):
            print(
                f"--listen {listen}: operators connect there (admin.listen is {config.admin.listen}): "
                "give another port, or change admin.listen",
                file=sys.stderr,
            )
            return None
        config = config.model_copy(update={"listen": listen})
    set_up_logging(config.log.level, workers=workers)
    return config


async def serve_until_signal(config: Config) -> int:
    """Serves until a signal asks it to stop. Returns the exit status."""
    try:
        running = await server.start(config)
    except CannotListen as error:
        return _tell(error)
    stopping = Stopping(running)
    Collections(running.app.fleet.in_flight)
    admin = config.admin
    if admin.listen is not None and running.admin_port is not None:
        admin = admin.model_copy(update={"listen": _taken(admin.listen, running.admin_port)})
    _tell_serving(config.model_copy(update={"listen": _taken(config.listen, running.port), "admin": admin}))
    await stopping.asked.wait()
    log.info(
        "stopping: running requests may end within %g s; another SIGTERM or SIGINT ends them", config.shutdown.drain_s
    )
    await running.stop()
    return 0


def _tell(error: CannotListen) -> int:
    option = " with --listen or" if error.key == "listen" else " with"
    print(
        f"cannot listen on {error.address}: {error.strerror}; choose another address{option} the key {error.key}",
        file=sys.stderr,
    )
    return 1


def _tell_serving(config: Config, workers: int = 1) -> None:
    """Says what is served where; the addresses are those that were really taken."""
    how = f" with {workers} workers" if workers > 1 else ""
    log.info("serving %s on http://%s%s", ", ".join(config.pools), config.listen, how)
    if config.admin.listen is not None:
        log.info("operators find /metrics and /weir/* on http://%s", config.admin.listen)


def _address(text: str) -> str:
    try:
        return address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _taken(listen: str, port: int) -> str:
    """Returns the address with the port that was really taken."""
    return f"{listen.rpartition(':')[0]}:{port}"


def set_up_logging(level: str, *, workers: int = 1) -> None:
    """Sends the log to standard error, with the process where there are several; requests' own lines go elsewhere."""
    process = "[%(process)d] " if workers > 1 else ""
    format = f"%(asctime)s %(levelname)s {process}%(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format=format, force=True)
    for noisy in ("httpx2", "httpcore2", "asyncio", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
