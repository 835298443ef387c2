"""Ollama's ``options``: how to sample, how much, and until where.

What a client leaves out stays out, so that the model's own parameters hold; Ollama's ``/v1`` would put 1.0 over its
temperature and top_p. Options that take effect only when a model is loaded are left out: another value would make the
engine load it anew, for everyone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .json_values import Json, as_list, as_object
from .ollama_errors import invalid

# Field -> option; of two that set the same option the later one holds.
SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
}
# A wrong type in them is a 500 of the engine's, which would be held against it.
_NUMBERS = frozenset((*SAMPLING.values(), "num_keep"))
_LOADING = frozenset(
    (
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "draft_num_predict",
        "use_mmap",
        "use_mlock",
        "low_vram",
        "f16_kv",
        "vocab_only",
        "numa",
    )
)


def sampling_options(body: Mapping[str, Any], dropped: list[str]) -> Json:
    """Returns the ``options`` of a request that generates: the client's own, and over them OpenAI's fields.

    The names of those that are left out are added to ``dropped``.

    Raises:
        EngineFailed: A value of a wrong type, or a limit of 0 (400, names the field).
    """
    options = given_options(body, dropped)
    for field, option in SAMPLING.items():
        if (value := body.get(field)) is not None:
            options[option] = _number(value, field)
            if option == "num_predict" and value == 0:  # it would be no limit
                raise invalid(field, "must be at least 1")
    if (stop := body.get("stop")) is not None:
        options["stop"] = _stops(stop, "stop")
    return options


def given_options(body: Mapping[str, Any], dropped: list[str]) -> Json:
    """Returns the client's own ``options``, without those that would load the model anew; otherwise as above."""
    given = as_object(body.get("options") or {})
    if given is None:
        raise invalid("options", "must be an object")
    options: Json = {}
    for option, value in given.items():
        if value is None:
            continue
        if option in _LOADING:
            dropped.append(f"options.{option}")
        elif option in _NUMBERS:
            options[option] = _number(value, f"options.{option}")
        else:
            options[option] = _stops(value, "options.stop") if option == "stop" else value
    return options


def _number(value: Any, field: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid(field, "must be a number")
    return value


def _stops(value: Any, field: str) -> list[Any]:
    stops = [value] if isinstance(value, str) else as_list(value)
    if stops is None or not all_strings(stops):
        raise invalid(field, "must be a string or a list of strings")
    return stops


def all_strings(value: Any) -> bool:
    items = as_list(value)
    return items is not None and all(isinstance(item, str) for item in items)
