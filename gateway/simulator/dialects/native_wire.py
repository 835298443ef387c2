"""What the engines' own calls share: one choice of plain text, its tokens one by one."""

from __future__ import annotations

from typing import ClassVar

from gateway.simulator.calls import Generation
from gateway.simulator.output import Output
from gateway.simulator.text import Answer
from gateway.simulator.transcript import Transcript


class NativeWire:
    """An answer in an engine's own format.

    Args:
        id: Of the answer, as far as the format has one.
    """

    media_type: ClassVar[str] = "text/event-stream; charset=utf-8"

    def __init__(self, call: Generation, id: str, created_unix_s: int) -> None:
        self.call = call
        self.id = id
        self.created_unix_s = created_unix_s
        self.said = Transcript(call)

    def add(self, output: Output) -> None:
        """Keeps one output."""
        self.said.add(output)

    def end(self) -> list[bytes]:
        """Returns nothing: the last token is the end."""
        return []

    @property
    def answer(self) -> Answer:
        """The only one."""
        return self.call.answers[0]

    @property
    def text(self) -> str:
        """The content so far."""
        return self.said.text(0, "content")
