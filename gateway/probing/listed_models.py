"""What the models that an engine lists say of the one that the configuration gives it."""

from __future__ import annotations

from typing import NamedTuple

from adapters.model_names import answers_to

from ..printable import printable
from .engine_detection import Recognised

NAMES_SHOWN = 5
SHOWN_CHARS = 256


class Doubt(NamedTuple):
    """The engine may not have the model.

    Attributes:
        certain: It surely refuses it.
        words: What is so, without the place.
    """

    certain: bool
    words: str


def doubt(found: Recognised, configured: str, model: str) -> Doubt | None:
    """Returns what speaks against an endpoint's model; None if nothing does.

    Args:
        found: What answers there.
        configured: The engine by the configuration; ``openai`` may be a proxy that knows more names than it lists.
        model: The engine's name of the model.
    """
    engine = "openai" if configured == "openai" else found.engine
    answers = answers_to(engine, model, found.models)
    if answers == "yes" or not found.models:
        return None
    name, names = printable(model, SHOWN_CHARS), shown_names(found.models)
    if answers == "no":
        return Doubt(True, f'{engine} has no model "{name}" and refuses every request for it; it has {names}')
    return Doubt(False, f'the engine does not list "{name}", and may refuse it; it lists {names}')


def shown_names(models: tuple[str, ...]) -> str:
    """Returns the first of an engine's models, on one line, and how many more there are."""
    names = [printable(model, SHOWN_CHARS) for model in models[:NAMES_SHOWN]]
    more = [f"and {len(models) - NAMES_SHOWN} more"] if len(models) > NAMES_SHOWN else []
    return ", ".join(names + more)
