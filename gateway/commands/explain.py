"""``weir explain``: where the time of a request went, from the flight recorder."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from ..config.problems import ConfigError
from ..explain.heatmap import heatmap
from ..explain.heatmap_picture import NoPlots, draw_picture
from ..explain.heatmap_text import draw_text
from ..explain.source import FileSource, GatewaySource, Source, SourceError
from ..explain.waterfall import listing, pipeline, waterfall
from ..recorder.asking import DEFAULT_SINCE, not_recorded
from ..recorder.file_arguments import add_file_arguments, named_file
from .arguments import duration_s, whole
from .terminal import Terminal

# A request that came so long before a heat map begins may still have waited in it.
BEFORE_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", help="a request id (x-request-id), or a trace id: then all of its requests")
    parser.add_argument("--slowest", type=whole(1), metavar="N", help="instead of an id: the N slowest requests")
    parser.add_argument(
        "--since", type=duration_s, default=DEFAULT_SINCE, metavar="TIME",
        help=f"with --slowest and --heatmap: the last so many minutes (default: {DEFAULT_SINCE})",
    )  # fmt: skip
    parser.add_argument("--pool", metavar="NAME", help="with --slowest and --heatmap: this pool only")
    parser.add_argument(
        "--heatmap", action="store_true", help="instead of an id: who waited where, by endpoint and time"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="with --heatmap: write a picture")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    source = parser.add_argument_group("where to look (default: the file that `weir serve` writes by itself)")
    add_file_arguments(source)
    source.add_argument("--url", help="ask a gateway that runs, for example http://127.0.0.1:8080")
    source.add_argument("--token", help="with --url: the gateway's admin.token")


def run(args: argparse.Namespace) -> int:
    """Returns the exit code: 0, 1 if nothing was found or written, or 2 if the options mean nothing together."""
    if (args.id is not None) + (args.slowest is not None) + args.heatmap != 1:
        print("name a request id or a trace id, or ask for --slowest N or --heatmap", file=sys.stderr)
        return 2
    if args.png is not None and not args.heatmap:
        print("--png draws a heat map: ask for --heatmap", file=sys.stderr)
        return 2
    if args.json and args.heatmap:
        print("a heat map has no JSON: leave --json out, or ask for --slowest N --json", file=sys.stderr)
        return 2
    try:
        if args.heatmap:
            return _heatmap(args)
        return _by_id(_source(args), args) if args.id is not None else _slowest(_source(args), args)
    except (SourceError, ConfigError, NoPlots) as error:
        print(error, file=sys.stderr)
        return 1


def _by_id(source: Source, args: argparse.Namespace) -> int:
    found = source.named(args.id)
    if not found:
        print(not_recorded(args.id), file=sys.stderr)
        return 1
    if args.json:
        one = found[-1]["request_id"] == args.id
        print(json.dumps(found[-1] if one else found, indent=2))
    elif found[-1]["request_id"] == args.id or len(found) == 1:
        Terminal().print(waterfall(found[-1]))
    else:
        Terminal().print(pipeline(found))
    return 0


def _slowest(source: Source, args: argparse.Namespace) -> int:
    found = source.slowest(args.slowest, args.since, args.pool)
    if args.json:
        print(json.dumps(found, indent=2))
    elif found:
        terminal = Terminal()
        terminal.print(listing(found, terminal.width))
        print("\nweir explain REQUEST draws one of them.")
    else:
        of_pool = f" of {args.pool}" if args.pool else ""
        print(f"no requests{of_pool} are recorded of that time; --since 1h looks further back", file=sys.stderr)
    return 0 if found else 1


def _heatmap(args: argparse.Namespace) -> int:
    if args.url is not None:
        raise SourceError("a heat map is drawn from a flight recorder's file: name it with --file, or -c")
    now_s = time.time()
    records = _file(args).between(now_s - args.since - BEFORE_S, now_s, args.pool)
    try:
        whole = heatmap(records, now_s - args.since, now_s)
    except ValueError as error:
        raise SourceError(f"{error}: --since 5m is shorter") from error
    if args.png is not None:
        try:
            draw_picture(whole, args.png)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SourceError(f"cannot write {args.png}: {reason}; name another file with --png") from error
        print(f"{args.png} is written")
    else:
        terminal = Terminal()
        terminal.print(draw_text(whole, terminal.picture_chars))
    return 0


def _source(args: argparse.Namespace) -> Source:
    if args.url is not None:
        return GatewaySource(args.url, args.token)
    return _file(args)


def _file(args: argparse.Namespace) -> FileSource:
    path = named_file(args)
    if path is None:
        raise SourceError("this configuration keeps flight records in memory: ask the gateway with --url")
    return FileSource(path)
