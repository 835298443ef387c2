"""Which flight recorder's file a command reads: named, or found by the configuration of the gateway that writes it."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config import RecordingConfig
from ..config.file import DEFAULT_FILE, load_part
from .location import recorder_path


def add_file_arguments(group: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds ``-c`` and ``--file``."""
    group.add_argument(
        "-c", "--config", metavar="FILE",
        help=f"configuration of the gateway whose file is read (default: {DEFAULT_FILE}, if there is one)",
    )  # fmt: skip
    group.add_argument("--file", type=Path, metavar="FILE", help="a flight recorder's file")


def named_file(args: argparse.Namespace) -> Path | None:
    """Returns the file; None if that gateway writes none.

    Raises:
        ConfigError: The configuration cannot be read.
    """
    if args.file is not None:
        path: Path = args.file
        return path
    if args.config is None and not Path(DEFAULT_FILE).exists():
        return recorder_path(RecordingConfig())  # what `weir serve` goes by without a file
    return recorder_path(load_part(args.config or DEFAULT_FILE, RecordingConfig))
