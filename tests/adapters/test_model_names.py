"""Whether an engine answers to a model name, by its list of models."""

from __future__ import annotations

import pytest

from adapters.model_names import Answers, answers_to


@pytest.mark.parametrize(
    ("engine", "name", "listed", "answers"),
    [
        ("vllm", "m", ("m",), "yes"),
        ("vllm", "adapter", ("m", "adapter"), "yes"),  # LoRA adapters are in the list
        ("vllm", "M", ("m",), "no"),
        ("vllm", "x", ("m", "n"), "no"),
        ("ollama", "llama3", ("llama3:latest",), "yes"),
        ("ollama", "Llama3:Latest", ("llama3:latest",), "yes"),
        ("ollama", "hub/llama3", ("hub/llama3:latest",), "yes"),
        ("ollama", "llama3", ("llama3:8b",), "no"),
        ("openai", "m", ("m",), "yes"),
        ("openai", "x", ("m",), "perhaps"),
        ("lmdeploy", "x", ("m",), "perhaps"),  # taken for an adapter
        ("llamacpp", "x", ("m",), "yes"),  # one model: the name is not looked at
        ("llamacpp", "x", ("m", "n"), "perhaps"),  # router mode
        ("tgi", "x", ("m",), "yes"),
        ("sglang", "m:adapter", ("m",), "yes"),
        ("lightllm", "x", ("m",), "yes"),
        ("trtllm", "x", ("m",), "perhaps"),
        ("vllm", "x", (), "perhaps"),
        ("unheard of", "x", ("m",), "perhaps"),
    ],
)
def test_what_the_list_says_of_a_name(engine: str, name: str, listed: tuple[str, ...], answers: Answers) -> None:
    assert answers_to(engine, name, listed) == answers
