"""Where commands draw for people: a terminal, or what stands in for one."""

from __future__ import annotations

import os
from typing import Final

from rich.console import Console

WHOLE_CHARS: Final = 10_000
"""A width in which nothing is folded: a file or a pipe has no edge, and whoever searches it wants whole lines."""


class Terminal(Console):
    """Standard output, as wide as the terminal is. Brackets in names are no markup.

    Attributes:
        picture_chars: The width for what is drawn as wide as there is room, 80 where there is no terminal.
    """

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False)
        self.picture_chars = self.width
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = WHOLE_CHARS

    def on_broken_pipe(self) -> None:
        """rich's own would end the process here."""
        raise BrokenPipeError
