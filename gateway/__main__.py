"""The ``weir`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from . import __version__
from .commands import check, demo, drain, endpoints, explain, readmit, replay, serve
from .simulator import command as engine

_COMMANDS = {
    "serve": (serve, "serve the configured engines, or those found on well-known local ports"),
    "check": (check, "say everything that is wrong with a configuration file"),
    "explain": (explain, "say where the time of a request went"),
    "replay": (replay, "make recorded choices of an endpoint again, by another policy"),
    "endpoints": (endpoints, "list the endpoints of a gateway that runs, and how they are"),
    "drain": (drain, "let an endpoint finish what it has, and send it nothing new"),
    "readmit": (readmit, "send requests again to an endpoint that was drained or ejected"),
    "demo": (demo, "start two small real engines and Weir in front of them"),
    "engine": (engine, "run a simulated engine"),
}


READER_LEFT = 141
"""The status that a shell tells of a command that SIGPIPE ended."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    try:
        try:
            return _run(argv)
        finally:
            print(end="", flush=True)  # here, and not when the interpreter ends and can only complain
    except BrokenPipeError:
        _write_no_more()
        return READER_LEFT


def _write_no_more() -> None:
    """Lets what nobody reads any more go nowhere: at its end the interpreter would try to write it once again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="weir", description="The gateway in front of self-hosted LLM engines.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"weir {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, summary) in _COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=module.__doc__, allow_abbrev=False)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
