"""The pictures of the documentation show panels that exist, and are small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.local_prometheus import Series
from deploy.pictures.panel import Span
from deploy.pictures.picture import PICTURES, Picture

DOCS = Path(__file__).parents[2] / "docs"
MOST_BYTES = 150_000
SPAN = Span(1_000.0, 1_004.0, 0.5, 2.0)
PNG = b"\x89PNG\r\n\x1a\n"


def series(*values: float) -> Series:
    return Series({}, [(SPAN.begin_unix_s + n * SPAN.step_s, value) for n, value in enumerate(values)])


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_page_shows_it_and_it_is_small(picture: Picture) -> None:
    path = DOCS / "pictures" / f"{picture.name}.png"
    assert path.stat().st_size < MOST_BYTES
    assert f"(pictures/{path.name})" in (DOCS / "dashboards.md").read_text()


def test_the_page_shows_no_other() -> None:
    shown = re.findall(r"\(pictures/(.+?)\.png\)", (DOCS / "dashboards.md").read_text())
    assert sorted(shown) == sorted(picture.name for picture in PICTURES)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_its_panel_exists_and_its_data_can_be_drawn(picture: Picture, tmp_path: Path) -> None:
    assert picture.panel().queries
    found = {"0.1": series(0, 2, 3), "0.25": series(0, 2, 9), "+Inf": series(0, 2, 9, 9)}
    picture.draw(tmp_path, found, SPAN)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes().startswith(PNG)
