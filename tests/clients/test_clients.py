"""Programs of real clients against Weir, each in front of each dialect: ``programs/`` and ``tests/node/programs/``.

What a client got is compared with what an engine says without Weir. To the same prompt all simulated engines answer the
same, and so do real ones as long as nobody asks for chance.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from tests.clients.conftest import Front
from tests.clients.dialects import Behind
from tests.clients.running import CLIENTS_PYTHON, ROOT, output_of
from tests.live.real_engine import PATIENCE

CALLS = json.loads((ROOT / "tests/clients/programs/calls.json").read_text(encoding="utf-8"))
NODE = ROOT / "tests/node"
ANSWER_S = 20.0 * PATIENCE

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
    Client("llm_command", "clients", COMMON - {"completion"} | SCHEMA),  # each call starts the command: a second or two
    Client("aiohttp_session", "clients", COMMON | VECTORS | SCHEMA),
    Client("curl_command", "tests", COMMON | VECTORS | SCHEMA),
    Client("openai_node", "node", COMMON | VECTORS | SCHEMA),
    Client("ai_sdk", "node", COMMON | VECTORS | SCHEMA),
)


@dataclass(frozen=True, slots=True)
class Truth:
    """What an engine itself answers to the calls."""

    engine: httpx2.Client
    model: str

    def chat(self) -> str:
        messages = [{"role": "user", "content": CALLS["question"]}]
        answer = self._ask("/chat/completions", messages=messages, max_tokens=CALLS["max_tokens"])
        return str(answer["choices"][0]["message"]["content"])

    def completion(self, prompt: str) -> str:
        answer = self._ask("/completions", prompt=prompt, max_tokens=CALLS["max_tokens"])
        return str(answer["choices"][0]["text"])

    def vectors(self) -> list[list[float]]:
        return [entry["embedding"] for entry in self._ask("/embeddings", input=CALLS["texts"])["data"]]

    def _ask(self, path: str, **body: object) -> dict[str, Any]:
        answer = self.engine.post(path, json={"model": self.model, **body}).raise_for_status()
        return dict(answer.json())


@pytest.fixture
def truth(behind: Behind) -> Generator[Truth]:
    with httpx2.Client(base_url=f"{behind.truth_url}/v1", trust_env=False, timeout=ANSWER_S) as engine:
        yield Truth(engine, behind.kind.model)


@pytest.mark.clients
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
async def test_a_client_gets_what_the_engine_says(client: Client, truth: Truth, weir: Front, tmp_path: Path) -> None:
    printed = await output_of(client.command, tmp_path, WEIR_BASE_URL=weir.base_url, WEIR_MODEL=weir.model)
    got: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    assert got.keys() == client.calls
    for call, found in got.items():
        if call in weir.behind.lacks:
            assert found["status"] in (400, 404, 501), found
            assert found["message"]
        else:
            check(call, found, truth)
    assert set(await weir.outcomes(len(got))) <= {"ok", "client_error"}


def check(call: str, found: Mapping[str, Any], truth: Truth) -> None:
    """Asserts what one call gave; a client that does not tell a member has none to compare."""
    if call == "unknown_model":
        assert found["status"] == 404
        assert found["code"] in ("model_not_found", None)  # a client may keep no code
        assert CALLS["unknown_model"] in found["message"]
    elif call == "embeddings":
        for vector, expected in zip(found["vectors"], truth.vectors(), strict=True):
            assert vector == pytest.approx(expected, abs=1e-6)
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
        # The prompt is told by a client that does not send it as it is.
        prompt = found.get("prompt", CALLS["prompt"])
        assert found["text"] == (truth.completion(prompt) if call.startswith("completion") else truth.chat())
        assert found.get("finish_reason", "length") == "length"
        assert found.get("completion_tokens", most) == most
        assert found.get("pieces", most) > 1
