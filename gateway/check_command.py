"""``weir check``: every mistake of a configuration file, or what it would serve."""

from __future__ import annotations

import argparse
import json

from gateway.config import Config
from gateway.config.file import load
from gateway.config.problems import ConfigError
from gateway.config.schema import config_schema

DEFAULT_FILE = "weir.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", default=DEFAULT_FILE, metavar="FILE", help=f"the file (default: {DEFAULT_FILE})"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of the file and read no file")


def run(args: argparse.Namespace) -> int:
    """Returns the exit code: 0 when the file can be used, 1 when it has mistakes."""
    if args.schema:
        print(json.dumps(config_schema(), indent=2, ensure_ascii=False))
        return 0
    try:
        config = load(args.config)
    except ConfigError as error:
        print("\n".join(error.lines()))
        count = len(error.problems)
        print(f"{count} {'mistake' if count == 1 else 'mistakes'}; every key is in docs/configuration.md")
        return 1
    print(f"{args.config} is valid. It would serve on http://{config.listen}:\n")
    print("\n".join(_table(config)))
    return 0


def _table(config: Config) -> list[str]:
    rows = [("MODEL", "ALIASES", "ENDPOINT", "ENGINE", "URL", "ENGINE'S MODEL")]
    for name, pool in config.pools.items():
        for index, endpoint in enumerate(pool.endpoints):
            model, aliases = (name, ", ".join(pool.aliases) or "-") if index == 0 else ("", "")
            rows.append((model, aliases, endpoint.id, endpoint.engine, endpoint.url, endpoint.model or name))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
