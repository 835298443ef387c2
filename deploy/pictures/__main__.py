"""Runs half a minute of traffic and draws what the dashboards would show, and what ``weir explain --heatmap`` does."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from deploy.local_prometheus import MISSING, PROMETHEUS
from gateway.__main__ import main as explain

from .picture import PICTURES
from .run import FLIGHTS, recorded

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


async def draw(folder: Path) -> None:
    """Writes the PNGs into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        async with recorded(Path(scratch)) as (prometheus, span):
            for picture in PICTURES:
                picture.draw(folder, await picture.panel().data(prometheus, span), span)
            since = ("--since", f"{time.time() - span.begin_unix_s:.0f}s")
            file, png = Path(scratch) / FLIGHTS, folder / "who-waited.png"
            if explain(["explain", "--heatmap", *since, "--file", str(file), "--png", str(png)]) != 0:
                raise RuntimeError("weir explain drew nothing")


def main() -> int:
    if PROMETHEUS is None:
        print(MISSING, file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    asyncio.run(draw(FOLDER))
    for path in sorted(FOLDER.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
