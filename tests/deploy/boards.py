"""The committed dashboards, as Grafana reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.dashboards.files import FOLDER

BOARDS: Mapping[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel or of an annotation."""

    board: str
    title: str
    expr: str

    @property
    def name(self) -> str:
        return f"{self.board}: {self.title}"


def panels(board: str) -> list[Any]:
    """The panels without the rows."""
    return [panel for panel in BOARDS[board]["panels"] if panel["type"] != "row"]


def targets() -> Iterator[Target]:
    for board, made in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield Target(board, panel["title"], target["expr"])
        for annotation in made["annotations"]["list"]:
            yield Target(board, annotation["name"], annotation["expr"])
