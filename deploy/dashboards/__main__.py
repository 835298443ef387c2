"""Writes the dashboards' JSON."""

from __future__ import annotations

from .files import FOLDER, texts

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text)
