"""Which engine answers at a base URL, in which version, and with which models: told from what it says of itself.

| engine | sign | version |
| --- | --- | --- |
| vLLM, TensorRT-LLM | ``owned_by`` in the model list | /version |
| SGLang | ``owned_by`` | /server_info, in older releases /get_server_info |
| llama.cpp | its Server header, also while the model loads, or ``owned_by`` | /props |
| LightLLM, LMDeploy | ``owned_by``; a LightLLM without a model list has /token_load | not told |
| TGI | /info with the limits of its batches | /info |
| Ollama | says so in words at / | /api/version |

Whoever else lists models speaks OpenAI's dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from adapters.json_values import Json, as_list, as_object, objects, read_json
from adapters.types import EngineName
from policies.types import Header

from ..small_answer import fetch
from ..upstream.contract import TransportError, Upstream, WireRequest

ANSWER_BYTES = 262_144
"""The most that is read of an answer; a longer one counts as an answer that says nothing."""
MOST_QUESTIONS = 4
"""The most that ``recognise`` asks, one after the other."""
_NAME_CHARS = 256
_VERSION_CHARS = 64

_OWNERS: dict[object, EngineName] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "lightllm": "lightllm",
    "lmdeploy": "lmdeploy",
    "tensorrt_llm": "trtllm",
}
_VERSIONS: dict[EngineName, tuple[tuple[str, str], ...]] = {
    "vllm": (("/version", "version"),),
    "trtllm": (("/version", "version"),),
    "sglang": (("/server_info", "version"), ("/get_server_info", "version")),
    "llamacpp": (("/props", "build_info"),),
    "ollama": (("/api/version", "version"),),
}
"""Where the version stands: path and key."""


class Recognised(NamedTuple):
    """What answers at a URL.

    Attributes:
        engine: Its name.
        version: As it tells it, or "".
        models: The names in its model list, in its order.
    """

    engine: EngineName
    version: str = ""
    models: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether the engine named itself; any server may turn out to speak OpenAI's dialect."""
        return self.engine != "openai"

    def contradicts(self, configured: str) -> bool:
        """Whether the configured engine is certainly wrong; ``auto`` and ``openai`` (any server) never are."""
        return self.certain and configured not in ("auto", "openai", self.engine)


class Reply(NamedTuple):
    """One answer.

    Attributes:
        status: HTTP status.
        server: The Server header, or "".
        body: All of it; b"" if it is too long.
        too_long: It is longer than was to be read.
        etag: The ETag header, or "".
    """

    status: int
    server: str
    body: bytes
    too_long: bool = False
    etag: str = ""

    @property
    def fields(self) -> Json:
        """The JSON object of a 200; empty if it is none."""
        try:
            return (as_object(read_json(self.body)) or {}) if self.status == 200 else {}
        except ValueError:
            return {}


class Questioner:
    """Asks one server, each question bounded in time and each answer in size.

    Args:
        upstream: Carries the questions.
        question: From a path, as ``/version``, and headers to what asks for it.
        timeout_s: For each whole answer.
        answer_bytes: The most that is read of one.

    Attributes:
        failure: Why the last question got no answer, or "".
    """

    def __init__(
        self,
        upstream: Upstream,
        question: Callable[[str, tuple[Header, ...]], WireRequest],
        timeout_s: float,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self._upstream = upstream
        self._question = question
        self._timeout_s = timeout_s
        self._answer_bytes = answer_bytes
        self.failure = ""

    async def ask(self, path: str, etag: str = "") -> Reply | None:
        """Returns what is answered, or None if nothing is, or not in time.

        Args:
            path: What to GET.
            etag: Of the answer that is known: if it is still the same, the answer is a 304 without it.
        """
        headers = ((b"if-none-match", etag.encode("ascii")),) if etag else ()
        self.failure = ""
        try:
            answer = await fetch(self._upstream, self._question(path, headers), self._timeout_s, self._answer_bytes)
        except TimeoutError:
            self.failure = f"no answer to {path} within {self._timeout_s:g} s"
            return None
        except TransportError as error:
            self.failure = str(error)
            return None
        server, told = answer.head.get(b"server") or b"", answer.head.get(b"etag") or b""
        body = b"" if answer.too_long else answer.body
        etag = told.decode("ascii") if told.isascii() else ""
        return Reply(answer.head.status, server.decode("latin-1"), body, answer.too_long, etag)


def plain_question(path: str, headers: tuple[Header, ...]) -> WireRequest:
    """Returns what asks a server of which nothing is configured."""
    return WireRequest("GET", path, headers, b"")


async def recognise(questioner: Questioner) -> Recognised | None:
    """Returns the engine that answers; None if nothing does, nothing that lists models, or not every question in time.

    An engine that was too busy for a question would be taken for another one, so it is to be asked again.
    """
    listed = await questioner.ask("/v1/models")
    if listed is None:
        return None
    cards = as_list(listed.fields.get("data"))
    models = tuple([name[:_NAME_CHARS] for card in objects(cards) if isinstance(name := card.get("id"), str)])
    engine = _named_by(listed.server, objects(cards))
    if engine is not None:
        return Recognised(engine, await _version(questioner, engine), models)
    info = await questioner.ask("/info")
    if info is None:
        return None
    if isinstance(info.fields.get("max_total_tokens"), int):
        return Recognised("tgi", _text(info.fields, "version"), models)
    root = await questioner.ask("/")
    if root is None:
        return None
    if root.body.startswith(b"Ollama is running"):
        return Recognised("ollama", await _version(questioner, "ollama"), models)
    if cards is not None or listed.too_long:
        return Recognised("openai", "", models)
    load = await questioner.ask("/token_load") if listed.status == 404 else None
    return Recognised("lightllm") if load is not None and "dynamic_max_load" in load.fields else None


def _named_by(server: str, cards: list[Json]) -> EngineName | None:
    if "llama.cpp" in server:
        return "llamacpp"
    owner: Any = cards[0].get("owned_by") if cards else None
    return _OWNERS.get(owner) if isinstance(owner, str) else None


async def _version(questioner: Questioner, engine: EngineName) -> str:
    for path, key in _VERSIONS.get(engine, ()):
        reply = await questioner.ask(path)
        if reply is not None and (version := _text(reply.fields, key)):
            return version
    return ""


def _text(fields: Json, key: str) -> str:
    value = fields.get(key)
    return value[:_VERSION_CHARS] if isinstance(value, str) else ""
