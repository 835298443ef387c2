"""``weir replay``: what another routing policy would have done with the requests of the last minutes."""

from __future__ import annotations

import argparse
import json
import sys
import time

from policies.routing import ROUTING

from ..config.problems import ConfigError
from ..explain.source import FileSource, SourceError
from ..recorder.asking import DEFAULT_SINCE
from ..recorder.file_arguments import add_file_arguments, named_file
from ..replay.comparison import compare
from ..replay.history import history
from ..replay.table import as_json, drawn
from .arguments import duration_s
from .terminal import Terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", choices=sorted(ROUTING), required=True, help="who chooses instead")
    parser.add_argument(
        "--since", type=duration_s, default=DEFAULT_SINCE, metavar="TIME",
        help=f"the requests of the last so many minutes (default: {DEFAULT_SINCE})",
    )  # fmt: skip
    parser.add_argument("--pool", metavar="NAME", help="this pool only")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_file_arguments(
        parser.add_argument_group("where to look (default: the file that `weir serve` writes by itself)")
    )


def run(args: argparse.Namespace) -> int:
    """Returns the exit code: 0, or 1 if nothing was found."""
    now_s = time.time()
    try:
        path = named_file(args)
        if path is None:
            raise SourceError("this configuration keeps flight records in memory: set recorder.path")
        records = FileSource(path).between(now_s - args.since, now_s, args.pool)
        told = compare(history(record for record in records if record.pool), ROUTING[args.policy]())
    except (SourceError, ConfigError) as error:
        print(error, file=sys.stderr)
        return 1
    if not told:
        of_pool = f" of {args.pool}" if args.pool else ""
        print(f"no choices{of_pool} are recorded of that time; --since 1h looks further back", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({pool: as_json(args.policy, comparison) for pool, comparison in told.items()}, indent=2))
        return 0
    terminal = Terminal()
    for pool, comparison in told.items():
        terminal.print(drawn(pool, args.policy, comparison))
        terminal.print()
    return 0
