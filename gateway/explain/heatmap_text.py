"""A heat map for a terminal: a line an endpoint and layer, darker where more waited."""

from __future__ import annotations

from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..attribution.verdict import written
from ..printable import printable
from .heatmap import LAYERS, Heatmap, highest

_SHADES = " ░▒▓█"
_LABEL_CHARS = 24
LEAST_COLUMNS = 20


def draw_text(whole: Heatmap, width_chars: int) -> RenderableType:
    """Draws it in so many columns of a terminal."""
    labels = max((len(_label(e)) for rows in whole.layers.values() for e in rows), default=0)
    shown = whole.narrowed(max(width_chars - labels - 2, LEAST_COLUMNS))
    parts: list[RenderableType] = []
    for name, rows in shown.layers.items():
        most = highest(list(rows.values()))
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        for endpoint, row in rows.items():
            table.add_row(_label(endpoint), Text("".join(_shade(value, most) for value in row), style="yellow"))
        parts += [Text(f"{name}, at most {most:.4g} {LAYERS[name]}", style="bold"), table, Text()]
    begin = datetime.fromtimestamp(shown.from_unix_s).astimezone().isoformat(" ", "milliseconds")
    parts.append(Text(f"from {begin}; a column is {written(shown.step_s)}, and shows the most of it", style="dim"))
    return Group(*parts)


def _shade(value: float, most: float) -> str:
    """Whatever is not nothing is seen."""
    if value <= 0 or most <= 0:
        return _SHADES[0]
    return _SHADES[min(1 + int(value / most * (len(_SHADES) - 1)), len(_SHADES) - 1)]


def _label(endpoint: str) -> str:
    return printable(endpoint, _LABEL_CHARS)
