"""Request fields of some engines that decide what an answer looks like or holds, under names of their own.

An engine that does not know one would pass over it and answer in another shape than was asked for.
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
