"""What every client asks each model for, and how a program tells what it got: JSON, ``{model: {call: found}}``.

``calls.json`` holds the questions, so that the programs for Node.js ask the same.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

Found = dict[str, Any]

_CALLS = json.loads(Path(__file__).with_name("calls.json").read_text(encoding="utf-8"))

BASE_URL = os.environ.get("WEIR_BASE_URL", "")
MODELS = os.environ.get("WEIR_MODELS", "").split(",")
API_KEY = "none"

QUESTION: str = _CALLS["question"]
MAX_TOKENS: int = _CALLS["max_tokens"]
WEATHER_QUESTION: str = _CALLS["weather_question"]
TOOL: Found = {"type": "function", "function": _CALLS["tool"]}
PERSON_QUESTION: str = _CALLS["person_question"]
PERSON_SCHEMA: Found = _CALLS["person_schema"]
PROMPT: str = _CALLS["prompt"]
TEXTS: list[str] = _CALLS["texts"]
UNKNOWN_MODEL: str = _CALLS["unknown_model"]


class Person(BaseModel):
    """``person_schema``, for clients that take a class."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather in a city"""
    raise AssertionError(f"a client ran the tool, with {city!r}; it should have told the call")


def user(question: str) -> list[Found]:
    """Returns a conversation of one message."""
    return [{"role": "user", "content": question}]


def tell(calls: Mapping[str, Callable[[str], Found]]) -> None:
    """Makes the calls, one after another, to each model, and prints what each gave or how it failed."""
    told: dict[str, dict[str, Found]] = {model: {} for model in MODELS}
    for model, found in told.items():
        for name, call in calls.items():
            try:
                found[name] = call(model)
            except Exception as error:
                found[name] = _failure(error)
    print(json.dumps(told))


async def tell_async(calls: Mapping[str, Callable[[str], Awaitable[Found]]]) -> None:
    """The same for clients that are awaited."""
    told: dict[str, dict[str, Found]] = {model: {} for model in MODELS}
    for model, found in told.items():
        for name, call in calls.items():
            try:
                found[name] = await call(model)
            except Exception as error:
                found[name] = _failure(error)
    print(json.dumps(told))


def _failure(error: Exception) -> Found:
    """Reads the errors of OpenAI's client, which most others raise or imitate. Tells any other whole, as ``raised``."""
    status = getattr(error, "status_code", None)
    if status is None:
        return {"raised": "".join(traceback.format_exception(error))}
    return {"status": status, "code": getattr(error, "code", None), "message": str(error)}
