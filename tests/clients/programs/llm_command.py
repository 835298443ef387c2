"""The ``llm`` command, told of Weir in its ``extra-openai-models.yaml``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from ast import literal_eval
from pathlib import Path

from tests.clients.programs.calls import (
    API_KEY,
    BASE_URL,
    MAX_TOKENS,
    MODEL,
    PERSON_QUESTION,
    PERSON_SCHEMA,
    PROMPT,
    QUESTION,
    UNKNOWN_MODEL,
    WEATHER_QUESTION,
    Found,
    tell,
)

LLM = Path(sys.executable).with_name("llm")
LENGTH = ("-o", "max_tokens", str(MAX_TOKENS))
TOOL = 'def get_weather(city: str) -> str:\n    "The weather in a city"\n    return "21 degrees"\n'

folder = tempfile.TemporaryDirectory()
models: list[Found] = [
    {"model_id": "weir", "model_name": MODEL, "supports_tools": True, "supports_schema": True},
    {"model_id": "weir-text", "model_name": MODEL, "completion": True},
    {"model_id": "weir-unknown", "model_name": UNKNOWN_MODEL},
]
Path(folder.name, "extra-openai-models.yaml").write_text(  # JSON is YAML
    json.dumps([{**model, "api_base": BASE_URL, "api_key_name": "weir"} for model in models])
)


def llm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (LLM, "prompt", "--no-log", "--key", API_KEY, *arguments),
        env=os.environ | {"LLM_USER_PATH": folder.name},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def printed(*arguments: str) -> str:
    done = llm(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def chat() -> Found:
    done = llm("-m", "weir", "--no-stream", "--usage", *LENGTH, QUESTION)
    usage = re.search(r"([\d,]+) output", done.stderr)
    assert usage is not None, done.stderr
    return {"text": done.stdout.removesuffix("\n"), "completion_tokens": int(usage[1])}


def chat_stream() -> Found:
    return {"text": printed("-m", "weir", *LENGTH, QUESTION)}


def tool_stream() -> Found:
    """The command runs the tool and sends its result; the answer to that has to hold it."""
    done = llm("-m", "weir", "--functions", TOOL, "--tools-debug", WEATHER_QUESTION)
    call = re.search(r"Tool call: (\w+)\((\{.*\})\)", done.stderr)
    assert call is not None, done.stderr
    assert "21 degrees" in done.stdout, done.stdout
    return {"name": call[1], "arguments": literal_eval(call[2])}


def structured() -> Found:
    return dict(json.loads(printed("-m", "weir", "--schema", json.dumps(PERSON_SCHEMA), PERSON_QUESTION)))


def completion_stream() -> Found:
    return {"text": printed("-m", "weir-text", *LENGTH, PROMPT)}


def unknown_model() -> Found:
    done = llm("-m", "weir-unknown", QUESTION)
    assert done.returncode == 1
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
