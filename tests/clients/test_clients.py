"""Programs of real clients against Weir in front of all dialects: ``programs/`` and ``tests/node/programs/``.

To start one takes seconds, so each is started once, and makes its calls to one dialect after another.

What a client got is compared with what an engine says without Weir. To the same prompt all simulated engines answer the
same, and so do real ones as long as nobody asks for chance.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
import pytest_asyncio

from tests.clients.conftest import Front
from tests.clients.dialects import LACKS, Behind
from tests.clients.running import CLIENTS_PYTHON, ROOT, output_of
from tests.live.real_engine import PATIENCE

CALLS = json.loads((ROOT / "tests/clients/programs/calls.json").read_text(encoding="utf-8"))
NODE = ROOT / "tests/node"
ANSWER_S = 20.0 * PATIENCE
WITHIN_S = 180.0 * PATIENCE
DEADLINE_S = WITHIN_S + ANSWER_S  # so that what the program said is seen

# What most clients can do.
COMMON = frozenset({"chat", "chat_stream", "tool_stream", "completion", "completion_stream", "unknown_model"})
VECTORS = frozenset({"embeddings"})
SCHEMA = frozenset({"structured"})


@dataclass(frozen=True, slots=True)
class Client:
    """A program.

    Attributes:
        runs_on: ``tests``, the Python that runs the tests; ``clients``, that of .venv-clients; or ``node``.
        calls: Those that its client can make.
    """

    program: str
    runs_on: Literal["tests", "clients", "node"]
    calls: frozenset[str]

    @property
    def missing(self) -> str | None:
        """Why it cannot be run here."""
        if self.runs_on == "clients" and not CLIENTS_PYTHON.exists():
            return "its packages are missing: make setup-clients"
        if self.runs_on == "node" and shutil.which("node") is None:
            return "Node.js is missing; on Debian: apt-get install nodejs"
        if self.runs_on == "node" and not (NODE / "node_modules/ai").exists():
            return "its packages are missing: make setup-node"
        if self.program == "curl_command" and shutil.which("curl") is None:
            return "curl is missing"
        return None

    @property
    def command(self) -> tuple[str | Path, ...]:
        if self.runs_on == "node":
            return ("node", NODE / f"programs/{self.program}.mjs")
        python = CLIENTS_PYTHON if self.runs_on == "clients" else Path(sys.executable)
        return (python, "-m", f"tests.clients.programs.{self.program}")


HELPERS = frozenset({"chat_stream", "tool_stream", "structured", "structured_stream"})
CLIENTS = (
    # OpenAI's client in the newest version, and in the newest that all the others agree on.
    Client("openai_sync", "tests", COMMON | VECTORS),
    Client("openai_async", "tests", COMMON | VECTORS),
    Client("openai_helpers", "tests", HELPERS),
    Client("openai_sync", "clients", COMMON | VECTORS),
    Client("openai_async", "clients", COMMON | VECTORS),
    Client("openai_helpers", "clients", HELPERS),
    Client("langchain_chat", "clients", COMMON | VECTORS | SCHEMA),
    Client("llama_index_like", "clients", COMMON | VECTORS | SCHEMA),
    Client("litellm_client", "clients", COMMON | VECTORS | SCHEMA),
    Client("llm_command", "clients", COMMON - {"completion"} | SCHEMA),
    Client("aiohttp_session", "clients", COMMON | VECTORS | SCHEMA),
    Client("curl_command", "tests", COMMON | VECTORS | SCHEMA),
    Client("openai_node", "node", COMMON | VECTORS | SCHEMA),
    Client("ai_sdk", "node", COMMON | VECTORS | SCHEMA),
)


@dataclass(frozen=True, slots=True)
class Truth:
    """What an engine itself answers to the calls."""

    engine: httpx2.AsyncClient
    model: str

    async def of(self, call: str, found: Mapping[str, Any]) -> Any:
        """Returns the text or the vectors that a client has to get; None if it is neither that the call asks for.

        Args:
            call: Its name.
            found: What the client got; with the prompt, if the client does not send the call's as it is.
        """
        most = CALLS["max_tokens"]
        if call.startswith("chat"):
            messages = [{"role": "user", "content": CALLS["question"]}]
            answer = await self._ask("/chat/completions", messages=messages, max_tokens=most)
            return answer["choices"][0]["message"]["content"]
        if call.startswith("completion"):
            answer = await self._ask("/completions", prompt=found.get("prompt", CALLS["prompt"]), max_tokens=most)
            return answer["choices"][0]["text"]
        if call == "embeddings" and "vectors" in found:  # the engine may have none
            return [entry["embedding"] for entry in (await self._ask("/embeddings", input=CALLS["texts"]))["data"]]
        return None

    async def _ask(self, path: str, **body: object) -> dict[str, Any]:
        answer = (await self.engine.post(path, json={"model": self.model, **body})).raise_for_status()
        return dict(answer.json())


@pytest_asyncio.fixture
async def truth(behind: Mapping[str, Behind]) -> AsyncGenerator[Truth]:
    first = next(iter(behind.values()))
    async with httpx2.AsyncClient(base_url=f"{first.urls[0]}/v1", trust_env=False, timeout=ANSWER_S) as engine:
        yield Truth(engine, first.model)


@pytest.mark.clients
@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(
            client,
            id=f"{client.program}-{client.runs_on}",
            marks=pytest.mark.skipif(client.missing is not None, reason=client.missing or ""),
        )
        for client in CLIENTS
    ],
)
async def test_a_client_gets_what_the_engines_say(
    client: Client, truth: Truth, weir: Front, subtests: pytest.Subtests, tmp_path: Path
) -> None:
    environ = {"WEIR_BASE_URL": weir.base_url, "WEIR_MODELS": ",".join(weir.behind)}
    printed = await output_of(client.command, tmp_path, within_s=WITHIN_S, **environ)
    got: dict[str, dict[str, dict[str, Any]]] = json.loads(printed.splitlines()[-1])
    assert got.keys() == weir.behind.keys()
    for model, answers in got.items():
        assert answers.keys() == client.calls
        for call, found in answers.items():
            expected = await truth.of(call, found)
            with subtests.test(f"{model}: {call}"):
                check(call, found, expected, lacking=call in LACKS.get(model, ()))

    astray = len(client.calls & {"unknown_model"})  # in each dialect's turn; they reach no pool
    least = {**dict.fromkeys(weir.behind, len(client.calls) - astray), "": astray * len(weir.behind)}
    for pool, ended in (await weir.outcomes(least)).items():
        with subtests.test(f"{pool or 'no pool'}: access log"):
            assert len(ended) >= least[pool]
            assert set(ended) <= {"ok", "client_error"}


def check(call: str, found: Mapping[str, Any], expected: Any, *, lacking: bool) -> None:
    """Asserts what one call gave; a client that does not tell a member has none to compare.

    Args:
        call: Its name.
        found: What the client got.
        expected: Of ``Truth``.
        lacking: The engine cannot do it.
    """
    assert "raised" not in found, found["raised"]
    assert ("status" in found) == (lacking or call == "unknown_model"), found
    if lacking:
        assert found["status"] in (400, 404, 501), found
        assert found["message"]
    elif call == "unknown_model":
        assert found["status"] == 404
        assert found["code"] in ("model_not_found", None)  # a client may keep no code
        assert CALLS["unknown_model"] in found["message"]
    elif call == "embeddings":
        for vector, wanted in zip(found["vectors"], expected, strict=True):
            assert vector == pytest.approx(wanted, abs=1e-6)
    elif call.startswith("structured"):
        assert found.keys() == {"name", "age"}
        assert isinstance(found["name"], str)
        assert type(found["age"]) is int
    elif call == "tool_stream":
        assert found["name"] == CALLS["tool"]["name"]
        assert found["arguments"] == {"city": "Paris"}
        assert found.get("finish_reason", "tool_calls") == "tool_calls"
    else:
        most = CALLS["max_tokens"]
        assert found["text"] == expected
        assert found.get("finish_reason", "length") == "length"
        assert found.get("completion_tokens", most) == most
        assert found.get("pieces", most) > 1
