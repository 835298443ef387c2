"""The engine that CONTRIBUTING.md makes up works as the page says: its codec is taken from there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from adapters import ADAPTERS
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import Request, Script, ScriptedUpstream, end, event, head, json_answer

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speaks for endpoints of ``engine: openai``, since the configuration does not know its name."""
    code = re.search(r"```python\n(\"\"\"Parrot.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    module = ModuleType("adapters.parrot")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there
    exec(compile(code[1], str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(ADAPTERS, "openai", module.PARROT)


def says(*events: bytes) -> Script:
    return [head(200, "sse"), *(event(data) for data in events), end()]


async def test_its_stream_is_openais(parrot: None) -> None:
    script = says(b'{"say": "Polly "}', b'{"say": "wants "}', b'{"say": "a cracker"}', b'{"bye": "stop"}', b"[DONE]")
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine="openai")) as gw:
        reply = await gw.post(r0(user=None))
        assert reply.content() == "Polly wants a cracker"
        assert reply.finishes() == ["stop"]
        assert {chunk["model"] for chunk in reply.chunks} == {"m"}
        assert len({chunk["id"] for chunk in reply.chunks}) == 1
        assert "user" not in u.last.json()


async def test_its_error_is_the_clients_status(parrot: None) -> None:
    def squawks(request: Request) -> Script:
        return says(b'{"squawk": "no crackers left"}') if request.asked_for_stream else json_answer({})

    async with ScriptedUpstream(squawks) as u, running_gateway(config(u.url, engine="openai")) as gw:
        reply = await gw.post(r0())
        assert reply.status == 502
        assert "no crackers left" in reply.error["message"]
