"""``weir serve`` without a file: looks for engines on the local ports where they are usually found."""

from __future__ import annotations

import asyncio
import logging
import sys

from ..config import Config, EndpointConfig, PoolConfig
from ..config.values import model_name
from ..printable import printable
from ..upstream.native import NativeUpstream
from .engine_detection import MOST_QUESTIONS, Questioner, Recognised, plain_question, recognise

log = logging.getLogger("weir.discovery")

# Default ports: vLLM 8000, llama.cpp 8080, SGLang 30000, TGI 3000, Ollama 11434, LightLLM 8088, LM Studio 1234,
# LMDeploy 23333, and what people take when the first is in use.
PORTS = (8000, 8001, 8002, 8080, 8081, 8082, 30000, 30001, 3000, 11434, 8088, 1234, 23333)
HOST = "127.0.0.1"
PROBE_S = 1.0
LOOK_S = MOST_QUESTIONS * PROBE_S  # one port
VERSION_CHARS = 64


async def discover(listen: str) -> Config:
    """Finds engines, prints what was found, and returns the configuration that serves each model they list.

    Raises:
        SystemExit: Nothing was found; says what to do.
    """
    own_port = listen.rpartition(":")[2]
    found = await asyncio.gather(*(_look(port) for port in PORTS if str(port) != own_port))
    pools: dict[str, list[EndpointConfig]] = {}
    for url, engine in (item for item in found if item is not None):
        name = f"{engine.engine} {printable(engine.version, VERSION_CHARS)}".strip()
        models = [model for model in engine.models if _servable(model)]
        print(f"found {name} on {url}: {', '.join(models) or 'no models'}", file=sys.stderr)
        for model in models:
            fields = {"url": url, "engine": engine.engine, "model": model}
            pools.setdefault(model, []).append(EndpointConfig.model_validate(fields))
    if not pools:
        ports = ", ".join(str(port) for port in PORTS)
        raise SystemExit(
            f"no engine answers on the local ports {ports}.\n"
            "Start one, write a configuration (weir serve -c weir.yaml; examples/weir.yaml shows one),\n"
            "or try a simulated engine: weir engine --port 8000"
        )
    return Config(
        listen=listen, pools={name: PoolConfig(endpoints=tuple(endpoints)) for name, endpoints in pools.items()}
    )


async def _look(port: int) -> tuple[str, Recognised] | None:
    url, upstream = f"http://{HOST}:{port}", NativeUpstream(HOST, port, tls=None, idle_s=0)
    questioner = Questioner(upstream, plain_question, PROBE_S)
    try:
        async with asyncio.timeout(LOOK_S):
            engine = await recognise(questioner)
            return (url, engine) if engine is not None else None
    except Exception as error:  # anything may listen on such a port, and answer anything
        log.debug("%s is no engine: %s", url, type(error).__name__)
        return None
    finally:
        await upstream.aclose()


def _servable(name: str) -> bool:
    """Whether a pool can have the name of this model."""
    try:
        return bool(model_name(name))
    except ValueError:
        return False
