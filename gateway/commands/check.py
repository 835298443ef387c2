"""``weir check``: every mistake of a configuration file, or what it would serve; and which engines answer."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

from gateway.config import Config
from gateway.config.file import DEFAULT_FILE, load
from gateway.config.problems import ConfigError
from gateway.config.schema import config_schema
from gateway.probing.endpoint_check import Finding, check_endpoints
from gateway.probing.listed_models import shown_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", default=DEFAULT_FILE, metavar="FILE", help=f"the file (default: {DEFAULT_FILE})"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of the file and read no file")
    parser.add_argument(
        "--probe", action="store_true", help="connect to every endpoint and print which engine answers there"
    )


def run(args: argparse.Namespace) -> int:
    """Returns the exit code: 0 when the file can be used, 1 when it has mistakes or ``--probe`` found some."""
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
    print("\n".join(_table(_served(config))))
    return _probe(config) if args.probe else 0


def _probe(config: Config) -> int:
    findings = asyncio.run(check_endpoints(config))
    print("\nWhat answers:\n")
    print("\n".join(_table(_found(findings))))
    warnings = [f"warning: {warning}" for finding in findings for warning in finding.warnings]
    if warnings:
        print("\n" + "\n".join(warnings))
    problems = [problem for finding in findings for problem in finding.problems]
    if problems:
        print("\n" + "\n".join(problems))
        print(f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}")
    return 1 if problems else 0


def _found(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("ENDPOINT", "URL", "ENGINE", "VERSION", "MODELS")]
    for finding in findings:
        models = shown_names(finding.models) or "-"
        rows.append((finding.endpoint_id, finding.url, finding.engine or "-", finding.version or "-", models))
    return rows


def _served(config: Config) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("MODEL", "ALIASES", "ENDPOINT", "ENGINE", "URL", "ENGINE'S MODEL")]
    for name, pool in config.pools.items():
        for index, endpoint in enumerate(pool.endpoints):
            model, aliases = (name, ", ".join(pool.aliases) or "-") if index == 0 else ("", "")
            rows.append((model, aliases, endpoint.id, endpoint.engine, endpoint.url, endpoint.model or name))
    return rows


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
