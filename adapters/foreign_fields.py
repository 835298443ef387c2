"""Request fields of some engines that decide what an answer looks like or holds, under names of their own.

An engine that does not know one would pass over it and answer in another shape than was asked for. Those that speak
OpenAI's dialect get every field as it came, whoever knows it; for the others it is translated or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHAPES: Mapping[str, tuple[Any, ...]] = {
    # vLLM
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "prompt_logprobs": (False,),
    "return_token_ids": (False,),
    # SGLang
    "json_schema": ("",),
    "regex": ("",),
    "ebnf": ("",),
    # llama.cpp and TGI
    "grammar": ("",),
}
"""Their names, and the values besides null that ask for nothing."""


def asks(value: Any, nothing: tuple[Any, ...]) -> bool:
    """Whether a value is none of those that ask for nothing; 0 is not False."""
    return not any(value == each and isinstance(value, bool) is isinstance(each, bool) for each in nothing)
