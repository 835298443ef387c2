"""What engines say of their slots and of the models they hold."""

from __future__ import annotations

import json

import pytest

from adapters.engine_facts import JSON_BYTES, MOST_SLOTS, NO_FACTS, EngineFacts, FactSource, fact_source
from adapters.types import AdapterError
from tests.adapters.recorded import FOLDER, read
from tests.fakes.dialects.answer import Load
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.script import joined

TELLING = {"llamacpp": "slots", "sglang": "slots", "lightllm": "slots", "ollama": "model_loaded"}


def source(name: str) -> FactSource:
    found = fact_source(name)
    assert found is not None
    return found


def ps(*names: str) -> EngineFacts:
    return source("ollama").read(json.dumps({"models": [{"name": name, "size": 1} for name in names]}).encode())


def test_who_tells_something() -> None:
    assert {name: found.tells for name in DIALECTS if (found := fact_source(name))} == TELLING
    assert fact_source("one that is not known") is None


def test_what_a_real_llama_cpp_says() -> None:
    recording = read(FOLDER / "llamacpp" / "props.res")
    slots = json.loads(recording.body)["total_slots"]
    assert slots >= 1
    assert source("llamacpp").read(recording.body) == EngineFacts(slots=slots)


@pytest.mark.parametrize("name", sorted(TELLING))
def test_each_engine_is_read_as_it_speaks(name: str) -> None:
    asked = source(name)
    told = asked.read(joined(DIALECTS[name](load=Load(slots=5)).pages()[asked.path.partition("?")[0]]))
    if asked.tells == "slots":
        assert told == EngineFacts(slots=5)
    else:
        assert told.loaded is not None
        assert len(told.loaded) == 1
    assert asked.lasting == (asked.tells == "slots")


@pytest.mark.parametrize(
    ("listed", "model", "holds"),
    [
        (("qwen3:0.6b",), "qwen3:0.6b", True),
        (("qwen3:latest",), "qwen3", True),
        (("qwen3:0.6b",), "qwen3", False),
        (("Qwen3:0.6B",), "qwen3:0.6b", True),
        (("hf.co/org/model:q4_k_m", "b"), "hf.co/org/model:Q4_K_M", True),
        (("host:5000/org/model:latest",), "host:5000/org/model", True),
        ((), "qwen3", False),
    ],
)
def test_a_model_is_held_under_any_spelling_of_its_name(listed: tuple[str, ...], model: str, holds: bool) -> None:
    assert ps(*listed).holds(model) is holds


def test_an_engine_that_does_not_list_what_it_holds_leaves_it_open() -> None:
    assert NO_FACTS.holds("m") is None
    assert source("ollama").read(b'{"models": null}').holds("m") is False


@pytest.mark.parametrize("name", sorted(TELLING))
@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{", b"\xff", b'"' + b"a" * JSON_BYTES + b'"', b"[" * 100_000])
def test_what_is_no_such_answer_is_said_to_be_none(name: str, body: bytes) -> None:
    with pytest.raises(AdapterError):
        source(name).read(body)


@pytest.mark.parametrize("value", [None, True, 0, -1, 2.5, "4", MOST_SLOTS + 1, 10**400, [4]])
def test_a_number_of_slots_that_cannot_be_is_unknown(value: object) -> None:
    assert source("llamacpp").read(json.dumps({"total_slots": value}).encode()) == NO_FACTS


def test_models_of_any_shape_are_passed_over() -> None:
    body = json.dumps({"models": [5, {}, {"name": None}, {"name": "a", "model": 7}]}).encode()
    assert source("ollama").read(body) == EngineFacts(loaded=frozenset(["a:latest"]))
    with pytest.raises(AdapterError):
        source("ollama").read(b"{}")
