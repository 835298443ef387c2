"""A heat map as a PNG, by matplotlib (the extra ``plots``)."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from ..attribution.verdict import written
from ..extras import how_to_install
from .heatmap import LAYERS, Heatmap, highest

MOST_COLUMNS = 3000  # more cannot be told apart in a picture of this width
_WIDTH_INCHES, _ROW_INCHES, _FRAME_INCHES = 14.0, 0.32, 0.9


class NoPlots(Exception):
    """matplotlib is missing; the message says how to get it."""


def draw_picture(whole: Heatmap, path: Path) -> None:
    """Writes the file.

    Raises:
        NoPlots: matplotlib is not installed.
        OSError: The file cannot be written.
    """
    if find_spec("matplotlib") is None:
        raise NoPlots(f"pictures need matplotlib: {how_to_install('plots')}")
    from matplotlib.figure import Figure

    shown = whole.narrowed(MOST_COLUMNS)
    endpoints = max(len(rows) for rows in shown.layers.values())
    height = len(shown.layers) * (max(endpoints, 1) * _ROW_INCHES + _FRAME_INCHES)
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    places = figure.subplots(len(shown.layers), 1, sharex=True)
    for place, (name, rows) in zip(places, shown.layers.items(), strict=True):
        image = place.imshow(
            list(rows.values()) or [[0.0]],
            aspect="auto",
            interpolation="nearest",
            cmap="magma_r",
            vmin=0,
            vmax=highest(list(rows.values())) or 1,
            extent=(0, shown.steps * shown.step_s, max(len(rows), 1), 0),
        )
        place.set_title(name, loc="left", fontsize=10)
        place.set_yticks([at + 0.5 for at in range(len(rows))], list(rows), fontsize=8)
        figure.colorbar(image, ax=place, label=LAYERS[name], pad=0.01)  # pyright: ignore[reportUnknownMemberType]
    begin = datetime.fromtimestamp(shown.from_unix_s).astimezone().isoformat(" ", "milliseconds")
    places[-1].set_xlabel(
        f"seconds from {begin}; a step is {written(shown.step_s)}, and shows the most of it", fontsize=8
    )
    figure.savefig(path, format="png", dpi=110)  # pyright: ignore[reportUnknownMemberType]
