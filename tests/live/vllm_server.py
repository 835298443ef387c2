"""A real vLLM on a free port, which it prints: becomes ``vllm serve`` in the environment ``.venv-vllm``."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from gateway.demo.engine_kind import MODEL, EngineKind
from gateway.demo.llamacpp_server import CHAT_TEMPLATE
from tests.live.vllm_installation import ENVIRONMENT, PYTHON

HOST = "127.0.0.1"
KV_CACHE_GIB = 1
START_S = 300.0
EXAMPLES = Path(__file__).with_name("chatml_examples.jinja")
OPTIONS = (
    *("--host", HOST, "--served-model-name", MODEL, "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "2048", "--max-num-seqs", "8"),
)
CHATS = (
    *("--chat-template", EXAMPLES.read_text() + CHAT_TEMPLATE.read_text(), "--chat-template-content-format", "openai"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-prompt-tokens-details"),
    # A request that does not ask for chance gets the same answer each time.
    *("--generation-config", "vllm", "--override-generation-config", '{"temperature": 0}'),
)
EMBEDS = ("--runner", "pooling")


def chatting(checkpoint: Path, engines: int, cpus: int | None = os.cpu_count()) -> EngineKind:
    """vLLM with the demo's model; ``engines`` of them share the machine."""
    threads = max(1, (cpus or 1) // engines)
    return _kind(threads, checkpoint, CHATS)


def embedding(checkpoint: Path) -> EngineKind:
    """vLLM that makes vectors of texts with the same model, instead of chatting."""
    return _kind(1, checkpoint, EMBEDS)


def _kind(threads: int, checkpoint: Path, options: tuple[str, ...]) -> EngineKind:
    return EngineKind("vLLM", "vllm", MODEL, __name__, (str(threads), str(checkpoint), *OPTIONS, *options), START_S)


def free_port() -> int:
    """vLLM does not tell the port that it takes when it is told 0."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def main(threads: str, *arguments: str) -> None:
    port = arguments[arguments.index("--port") + 1] if "--port" in arguments else str(free_port())
    print(f"vLLM on http://{HOST}:{port}", flush=True)
    settings = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": threads,
        "TORCHDYNAMO_DISABLE": "1",  # else the first request for logprobs compiles for half a minute
        "PATH": os.pathsep.join((str(ENVIRONMENT / "bin"), os.environ["PATH"])),
    }
    command = (str(PYTHON), "-m", "tests.live.vllm_command", "serve", *arguments, "--port", port)
    os.execve(PYTHON, command, os.environ | settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
