"""What an engine says of how it is set up, and of the models it holds: what to ask it, and what its answer means.

| engine | where | tells |
| --- | --- | --- |
| llama.cpp | /props ``total_slots`` | requests that it works on at once |
| SGLang | /server_info ``max_running_requests`` | the same |
| LightLLM | /get_server_info ``running_max_req_size`` | the same |
| Ollama | /api/ps | the models in its memory; any other has to be loaded first |

The first three do not change while the engine runs. vLLM and TGI do not tell theirs, nor does Ollama.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

from .failures import AdapterError
from .json_values import Json, objects, read_json_object
from .model_names import tagged

JSON_BYTES = 262_144
"""The longest answer that is read."""
MOST_SLOTS = 1_000_000
"""More are no setting."""
MOST_MODELS = 1000

Fact = Literal["slots", "model_loaded"]


class EngineFacts(NamedTuple):
    """Facts of one engine; None where it does not tell them.

    Attributes:
        slots: Requests that it works on at once.
        loaded: Names of the models in its memory.
    """

    slots: int | None = None
    loaded: frozenset[str] | None = None

    def holds(self, model: str) -> bool | None:
        """Returns whether it has the model in its memory; None if it does not say."""
        return None if self.loaded is None else tagged(model) in self.loaded


NO_FACTS = EngineFacts()


class FactSource(NamedTuple):
    """The question about an engine's facts.

    Attributes:
        path: What to GET, below the engine's base URL.
        read: Turns the body of a 200 into facts; ``AdapterError`` if it is no such answer.
        tells: What the answer tells.
        lasting: One answer is good for as long as the engine runs.
    """

    path: str
    read: Callable[[bytes], EngineFacts]
    tells: Fact
    lasting: bool


def fact_source(engine: str) -> FactSource | None:
    """Returns what to ask an engine; None if it tells nothing."""
    return _SOURCES.get(engine)


def _slots(key: str, body: bytes) -> EngineFacts:
    slots = _fields(body).get(key)
    known = isinstance(slots, int) and not isinstance(slots, bool) and 0 < slots <= MOST_SLOTS
    return EngineFacts(slots=slots if known else None)


def _ps(body: bytes) -> EngineFacts:
    """``{"models": [{"name": "llama3:8b", "model": "llama3:8b", ...}]}``; ``null`` or [] while it holds none."""
    fields = _fields(body)
    if "models" not in fields:
        raise AdapterError("the answer has no models")
    models = objects(fields["models"])[:MOST_MODELS]
    names = (model.get(key) for model in models for key in ("name", "model"))
    return EngineFacts(loaded=frozenset([tagged(name) for name in names if isinstance(name, str)]))


def _fields(body: bytes) -> Json:
    if len(body) > JSON_BYTES:
        raise AdapterError("the answer is too long")
    fields = read_json_object(body)
    if fields is None:
        raise AdapterError("the answer is no JSON object")
    return fields


_SOURCES: Mapping[str, FactSource] = {
    "llamacpp": FactSource("/props", partial(_slots, "total_slots"), "slots", True),
    "sglang": FactSource("/server_info", partial(_slots, "max_running_requests"), "slots", True),
    "lightllm": FactSource("/get_server_info", partial(_slots, "running_max_req_size"), "slots", True),
    "ollama": FactSource("/api/ps", _ps, "model_loaded", False),
}
