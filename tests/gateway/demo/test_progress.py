"""What is shown while the demo starts."""

from __future__ import annotations

import io
import re

import pytest

from gateway.demo import progress
from gateway.demo.progress import Progress
from tests.gateway.demo.eventually import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_elsewhere_than_on_a_terminal_a_step_is_whole_lines() -> None:
    out = io.StringIO()
    async with Progress(out).step("Starting"):
        assert out.getvalue() == "Starting ...\n"
    assert re.fullmatch(r"Starting \.\.\.\nStarting: done in \d\.\d s\n", out.getvalue())


async def test_elsewhere_a_long_step_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "ELSEWHERE_EVERY_S", 0.001)
    out = io.StringIO()
    async with Progress(out).step("Starting"):
        await eventually(lambda: len(re.findall(r"^Starting \.\.\. \d+ s$", out.getvalue(), re.MULTILINE)) > 1)
    assert "\r" not in out.getvalue()


async def test_on_a_terminal_a_step_is_one_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TERMINAL_EVERY_S", 0.001)
    out = Terminal()
    async with Progress(out).step("Starting"):
        await eventually(lambda: re.search(r"\r\x1b\[KStarting \.\.\. \d+\.\d s", out.getvalue()) is not None)
        assert "\n" not in out.getvalue()
    assert re.search(r"\r\x1b\[KStarting: done in \d\.\d s\n$", out.getvalue())


async def test_a_step_that_fails_says_so() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="why"):
        async with Progress(out).step("Starting"):
            raise ValueError("why")
    assert re.search(r"^Starting: failed after \d\.\d s$", out.getvalue(), re.MULTILINE)
