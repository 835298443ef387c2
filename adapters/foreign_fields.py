"""Request fields that some engines have, and OpenAI and the other engines have not.

An engine that does not know one passes over it. If that field decides what an answer looks like or holds, the answer
would have another shape than was asked for, so the engine is not asked. What only tunes the sampling is left out, and
named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .failures import Unsupported
from .json_values import Json

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

GUIDED: Mapping[str, str] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
"""vLLM's old names, which releases from 0.12 on pass over, and the new ones, which stand in ``structured_outputs``."""


class Change(NamedTuple):
    """What a request needs because of such fields.

    Attributes:
        add: Fields to set.
        drop: Fields to leave out.
        dropped: Of those, the ones that are lost: the client is told.
    """

    add: Json
    drop: tuple[str, ...]
    dropped: tuple[str, ...]


class ForeignFields(NamedTuple):
    """What becomes of such fields in requests to one engine. What is not named here is passed on as it is.

    Attributes:
        unknown: Of ``SHAPES``, those that it does not know.
        unread: Fields that tune the sampling and that it passes over, each with the values besides null that ask for
            nothing. They are left out and named, since the engine would not say so.
        renamed: Fields that it has under another name. If the client sends that too, that one holds.
        guided: It has ``structured_outputs``, and the names of ``GUIDED`` in old releases only: it is sent both.
    """

    unknown: frozenset[str] = frozenset()
    unread: Mapping[str, tuple[Any, ...]] = {}
    renamed: Mapping[str, str] = {}
    guided: bool = False

    def all(self) -> frozenset[str]:
        """Returns the names of the fields that change a request."""
        return frozenset((*self.unknown, *self.unread, *self.renamed, *(GUIDED if self.guided else ())))

    def change(self, engine: str, body: Mapping[str, Any]) -> Change:
        """Returns what a request needs.

        Args:
            engine: Its name.
            body: With its long strings.

        Raises:
            Unsupported: The engine does not know a field that the shape of the answer depends on.
        """
        given = {key: value for key, value in body.items() if value is not None}
        for field in given.keys() & self.unknown:
            if asks(given[field], SHAPES[field]):
                raise Unsupported(
                    f"{engine} does not know the field {field}, and would answer in another shape: leave it out,"
                    " or ask for a model of an engine that has it",
                    field,
                )
        add: Json = {new: given[old] for old, new in self.renamed.items() if old in given and new not in given}
        if self.guided and "structured_outputs" not in given:
            guided = {new: given[old] for old, new in GUIDED.items() if old in given}
            add |= {"structured_outputs": guided} if guided else {}
        lost = tuple(
            [field for field, nothing in self.unread.items() if field in given and asks(given[field], nothing)]
        )
        lost += tuple([old for old, new in self.renamed.items() if old in given and new in given])
        return Change(add, (*lost, *(old for old in self.renamed if old in given)), lost)


NOTHING_KNOWN = ForeignFields()
"""Of an engine that may know every field."""


def asks(value: Any, nothing: tuple[Any, ...]) -> bool:
    """Whether a value is none of those that ask for nothing; 0 is not False."""
    return not any(value == each and isinstance(value, bool) is isinstance(each, bool) for each in nothing)


def unread(*fields: str) -> Mapping[str, tuple[Any, ...]]:
    """Returns some of ``UNREAD``."""
    return {field: UNREAD[field] for field in fields}


def unknown_but(*known: str) -> frozenset[str]:
    """Returns the names in ``SHAPES`` without some."""
    return frozenset(SHAPES).difference(known)


UNREAD: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "typical_p": (1,),
    "repeat_last_n": (),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
}
"""Fields that some engines pass over, and the values besides null that ask for nothing."""

TO_REPETITION = {"repeat_penalty": "repetition_penalty"}
"""llama.cpp's and Ollama's name of it, and everybody else's."""
