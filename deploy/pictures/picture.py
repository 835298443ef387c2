"""Which panels are drawn, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploy.local_prometheus import Series

from . import drawing
from .panel import Panel, Span, panel


@dataclass(frozen=True, slots=True)
class Picture:
    """One file of ``docs/pictures``.

    Attributes:
        name: Of the file, without its ending.
        board: The dashboard's file, without its ending.
        title: Of the panel, and of the picture.
        unit: Of the vertical axis; a heat map has its own.
    """

    name: str
    board: str
    title: str
    kind: Literal["heat map", "parts", "lines"]
    unit: str = ""

    def panel(self) -> Panel:
        return panel(self.board, self.title)

    def draw(self, folder: Path, found: Mapping[str, Series], span: Span) -> None:
        """Writes the file."""
        path = folder / f"{self.name}.png"
        if self.kind == "heat map":
            drawing.heat_map(path, self.title, found, span)
        elif self.kind == "parts":
            drawing.parts(path, self.title, self.unit, found, span)
        else:
            drawing.lines(path, self.title, self.unit, found, span)


PICTURES = (
    Picture("ttft-heat-map", "streams", "Time to the first token", "heat map"),
    Picture("gap-heat-map", "streams", "Longest gap of an answer", "heat map"),
    Picture("queue-split", "streams", "Parts of the wait", "parts", "s"),
    Picture("rates", "overview", "Requests, by how they ended", "parts", "requests/s"),
    Picture("gateway-against-engine", "engines", "Time to the first token, p95", "lines", "s"),
)
