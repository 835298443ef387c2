"""The ``llm`` command, told of Weir in its ``extra-openai-models.yaml``.

Its command line is run in this process, as the script ``llm`` runs it: to import it anew takes seconds.
"""

from __future__ import annotations

import json
import re
import tempfile
from ast import literal_eval
from functools import cache
from pathlib import Path

import llm
from click.testing import CliRunner, Result
from llm.cli import cli

from tests.clients.programs.calls import (
    API_KEY,
    BASE_URL,
    MAX_TOKENS,
    MODELS,
    PERSON_QUESTION,
    PERSON_SCHEMA,
    PROMPT,
    QUESTION,
    UNKNOWN_MODEL,
    WEATHER_QUESTION,
    Found,
    tell,
)

LENGTH = ("-o", "max_tokens", str(MAX_TOKENS))
TOOL = 'def get_weather(city: str) -> str:\n    "The weather in a city"\n    return "21 degrees"\n'

folder = tempfile.TemporaryDirectory()
models: list[Found] = [{"model_id": "unknown", "model_name": UNKNOWN_MODEL}]
for name in MODELS:
    models += [
        {"model_id": f"chats-{name}", "model_name": name, "supports_tools": True, "supports_schema": True},
        {"model_id": f"completes-{name}", "model_name": name, "completion": True},
    ]
Path(folder.name, "extra-openai-models.yaml").write_text(  # JSON is YAML
    json.dumps([{**model, "api_base": BASE_URL, "api_key_name": "weir"} for model in models])
)
# Each run lists all models, which takes it half a second; the list is the same for all.
llm.get_models_with_aliases = cache(llm.get_models_with_aliases)
runner = CliRunner(env={"LLM_USER_PATH": folder.name}, catch_exceptions=False)


def run(*arguments: str) -> Result:
    """Runs the command, with nothing on its standard input."""
    return runner.invoke(cli, ("prompt", "--no-log", "--key", API_KEY, *arguments), prog_name="llm")


def printed(*arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.removesuffix("\n")


def chat(model: str) -> Found:
    done = run("-m", f"chats-{model}", "--no-stream", "--usage", *LENGTH, QUESTION)
    usage = re.search(r"([\d,]+) output", done.stderr)
    assert usage is not None, done.stderr
    return {"text": done.stdout.removesuffix("\n"), "completion_tokens": int(usage[1])}


def chat_stream(model: str) -> Found:
    return {"text": printed("-m", f"chats-{model}", *LENGTH, QUESTION)}


def tool_stream(model: str) -> Found:
    """The command runs the tool and sends its result; the answer to that has to hold it."""
    done = run("-m", f"chats-{model}", "--functions", TOOL, "--tools-debug", WEATHER_QUESTION)
    call = re.search(r"Tool call: (\w+)\((\{.*\})\)", done.stderr)
    assert call is not None, done.stderr
    assert "21 degrees" in done.stdout, done.stdout
    return {"name": call[1], "arguments": literal_eval(call[2])}


def structured(model: str) -> Found:
    return dict(json.loads(printed("-m", f"chats-{model}", "--schema", json.dumps(PERSON_SCHEMA), PERSON_QUESTION)))


def completion_stream(model: str) -> Found:
    return {"text": printed("-m", f"completes-{model}", *LENGTH, PROMPT)}


def unknown_model(_: str) -> Found:
    done = run("-m", "unknown", QUESTION)
    assert done.exit_code == 1
    status = re.search(r"Error code: (\d+)", done.stderr)
    code = re.search(r"'code': '(\w+)'", done.stderr)
    assert status is not None, done.stderr
    return {"status": int(status[1]), "code": code and code[1], "message": done.stderr}


if __name__ == "__main__":
    tell(
        {
            "chat": chat,
            "chat_stream": chat_stream,
            "tool_stream": tool_stream,
            "structured": structured,
            "completion_stream": completion_stream,
            "unknown_model": unknown_model,
        }
    )
