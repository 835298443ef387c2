"""What engines say of themselves at their GET paths, byte for byte.

vLLM's and llama.cpp's answers are recordings; the others are written from the engines' sources. A path that is not
here answers 404, as it does there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.adapters.recorded import FOLDER
from tests.fakes.script import Script, end, eof, wire
from tests.fakes.scripted import NOT_FOUND, PLAIN, ScriptedUpstream, chat_stream

Said = Mapping[str, bytes]


def http(body: object, *headers: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """One answer; ``body`` is bytes as they are, or a value to be written as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    lines = [f"HTTP/1.1 {status}", *headers, f"content-type: {kind}", f"content-length: {len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def cards(owner: str, *names: str, **more: object) -> dict[str, object]:
    """A model list."""
    made = [{"id": name, "object": "model", "created": 1787300000, "owned_by": owner, **more} for name in names]
    return {"object": "list", "data": made}


def _recorded(folder: str, *names: str) -> dict[str, bytes]:
    paths = {"models": "/v1/models", "version": "/version", "props": "/props", "health": "/health"}
    return {paths[name]: (FOLDER / folder / f"{name}.res").read_bytes() for name in names}


UVICORN = "server: uvicorn"
NO_FIELDS: dict[str, object] = {}
HYPERCORN = "server: hypercorn-h11"

TGI_INFO = {
    "model_id": "org/model",
    "model_sha": "0123abc",
    "model_pipeline_tag": "text-generation",
    "max_concurrent_requests": 128,
    "max_best_of": 2,
    "max_stop_sequences": 4,
    "max_input_tokens": 4095,
    "max_total_tokens": 4096,
    "validation_workers": 2,
    "max_client_batch_size": 4,
    "router": "text-generation-router",
    "version": "3.3.7",
    "sha": "1234567",
    "docker_label": None,
}

ENGINES: Mapping[str, tuple[Said, str, tuple[str, ...]]] = {
    "vllm": (_recorded("vllm", "models", "version"), "0.32.0", ("smollm2-135m",)),
    "llamacpp": (_recorded("llamacpp", "models", "props"), "b0-unknown", ("smollm2-135m",)),
    "sglang": (
        {
            "/v1/models": http(cards("sglang", "m", root="m", max_model_len=8192), UVICORN),
            "/model_info": http({"model_path": "m", "is_generation": True}, UVICORN),
            "/server_info": http({"model_path": "m", "internal_states": [NO_FIELDS], "version": "0.5.23"}, UVICORN),
        },
        "0.5.23",
        ("m",),
    ),
    "tgi": (
        {
            "/v1/models": http(cards("org/model", "org/model")),
            "/info": http(TGI_INFO),
            "/": http(TGI_INFO),
            "/health": http(b"", kind="text/plain"),
        },
        "3.3.7",
        ("org/model",),
    ),
    "ollama": (
        {
            "/": http(b"Ollama is running", kind="text/plain; charset=utf-8"),
            "/api/version": http({"version": "0.33.0"}),
            "/v1/models": http(cards("library", "qwen3:0.6b", "llama3:8b")),
        },
        "0.33.0",
        ("qwen3:0.6b", "llama3:8b"),
    ),
    "lightllm": (
        {
            "/v1/models": http(cards("lightllm", "m", max_model_len=16384), HYPERCORN),
            "/token_load": http({"current_load": 0.4, "logical_max_load": 0.5, "dynamic_max_load": 0.5}, HYPERCORN),
            "/get_server_info": http({"run_mode": "normal", "model_dir": "/models/m"}, HYPERCORN),
        },
        "",
        ("m",),
    ),
    "lmdeploy": (
        {
            "/v1/models": http(cards("lmdeploy", "internlm2", root="internlm2", permission=[]), UVICORN),
            "/health": http({"status": "healthy"}, UVICORN),
        },
        "",
        ("internlm2",),
    ),
    "trtllm": (
        {
            "/v1/models": http(cards("tensorrt_llm", "m"), UVICORN),
            "/version": http({"version": "1.3.0rc1"}, UVICORN),
            "/server_info": http({"disaggregated_params": {}}, UVICORN),
        },
        "1.3.0rc1",
        ("m",),
    ),
    "openai": ({"/v1/models": http(cards("somebody", "m", "n"))}, "", ("m", "n")),
}
"""By engine: what it says, its version, its models."""


def plain(said: Said) -> dict[str, Script]:
    """The same as scripts, with 404 for whatever else an engine might answer."""
    silent: dict[str, Script] = dict.fromkeys(PLAIN, NOT_FOUND)
    return {**silent, **{path: [wire(data), end()] for path, data in said.items()}}


def engine(name: str, **more: bytes) -> ScriptedUpstream:
    """An engine that says what this one does; keyword arguments are more paths, with __ for /."""
    said = {**ENGINES[name][0], **{"/" + path.replace("__", "/"): data for path, data in more.items()}}
    return ScriptedUpstream(chat_stream(), plain=plain(said))


def cut(data: bytes, size: int) -> Script:
    """An answer in pieces of this size; the connection ends with it."""
    return [*(wire(data[at : at + size]) for at in range(0, len(data), size)), eof()]
