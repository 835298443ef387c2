"""Log-probabilities of a text completion: OpenAI has parallel lists there, and one list of objects in chat. Pure."""

from __future__ import annotations

from typing import Any

from .json_values import Json, as_list, as_object, objects


def text_logprobs(tokens: list[Json], text_at: int) -> Json:
    """Returns the lists of ``/v1/completions`` from the objects of chat.

    Args:
        tokens: Objects with ``token``, ``logprob`` and ``top_logprobs``; what is missing becomes "" or null.
        text_at: Characters of the text before the first of them.
    """
    offsets: list[int] = []
    for item in tokens:
        offsets.append(text_at)
        text_at += len(_token(item))
    return {
        "tokens": [_token(item) for item in tokens],
        "token_logprobs": [item.get("logprob") for item in tokens],
        "top_logprobs": [
            {_token(top): top.get("logprob") for top in objects(item.get("top_logprobs"))} for item in tokens
        ],
        "text_offset": offsets,
    }


def as_text_logprobs(choice: Json, text_at: int) -> bool:
    """Puts a text choice's log-probabilities right that came in the form of chat (llama.cpp), in place.

    Returns whether they did.
    """
    logprobs = as_object(choice.get("logprobs"))
    if logprobs is None or "text" not in choice or "tokens" in logprobs:
        return False
    if as_list(tokens := logprobs.get("content")) is None:
        return False
    choice["logprobs"] = text_logprobs(objects(tokens), text_at)
    return True


def _token(item: Json) -> str:
    token: Any = item.get("token")
    return token if isinstance(token, str) else ""
