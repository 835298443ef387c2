"""Where the flight recorder's file is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..config import Config, RecordingConfig

AUTO: Final = "auto"
MEMORY: Final = "memory"


def recorder_path(config: Config | RecordingConfig, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the file, or None if records are kept in memory only.

    ``auto`` is a file in the user's state directory, one for each port that clients connect to. A port that is not
    known beforehand has none.
    """
    path = config.recorder.path
    if path == MEMORY:
        return None
    if path != AUTO:
        return Path(path).expanduser()
    home = environ.get("XDG_STATE_HOME") or (f"{environ['HOME']}/.local/state" if environ.get("HOME") else "")
    if not home or config.listen_port == 0:
        return None
    return Path(home, "weir", f"flights-{config.listen_port}.sqlite")
