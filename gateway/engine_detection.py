"""Which engine answers at a base URL, and in which version: told from what it says of itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx2

from .config import Engine


class Recognised(NamedTuple):
    """An engine's name, as in ``adapters.ADAPTERS``, and its version or ""."""

    engine: Engine
    version: str


async def recognise(client: httpx2.AsyncClient, base_url: str, timeout_s: float) -> Recognised | None:
    """Returns the engine at ``base_url`` (without ``/v1``), or None if nothing answers there.

    llama.cpp names itself in its Server header and in /props, SGLang has /model_info, vLLM says ``owned_by: vllm``
    in its model list and has /version. Whoever else lists models speaks OpenAI's dialect.
    """

    async def get(path: str) -> tuple[httpx2.Headers, Any] | None:
        try:
            response = await client.get(base_url + path, timeout=timeout_s)
        except httpx2.HTTPError:
            return None
        try:
            return (response.headers, response.json()) if response.status_code == 200 else None
        except ValueError:
            return (response.headers, None)

    models = await get("/v1/models")
    if models is None:
        return None
    headers, listed = models
    if "llama.cpp" in headers.get("server", ""):
        props = await get("/props")
        return Recognised("llamacpp", _text(props, "build_info"))
    if _owned_by(listed) == "vllm":
        return Recognised("vllm", _text(await get("/version"), "version"))
    if await get("/model_info") is not None:
        return Recognised("sglang", _text(await get("/server_info"), "version"))
    return Recognised("openai", "")


def _text(answer: tuple[httpx2.Headers, Any] | None, key: str) -> str:
    if answer is None or not isinstance(answer[1], dict):
        return ""
    value = answer[1].get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return value[:64] if isinstance(value, str) else ""


def _owned_by(listed: Any) -> str | None:
    try:
        owner: object = listed["data"][0]["owned_by"]
    except (KeyError, IndexError, TypeError):
        return None
    return owner if isinstance(owner, str) else None
