"""An engine's own times reach the client, wherever the engine has put them."""

from __future__ import annotations

import re

import pytest

from tests.conformance.rig import behind_weir, both_ways, every_engine
from tests.fakes.dialects.answer import Say
from tests.fakes.raw_client import r0

Times = dict[str, float]

OLLAMA: Times = {"queue": 88.9, "load": 2.1, "prefill": 41.0, "decode": 180.0}
LLAMACPP: Times = {"prefill": 30.5, "decode": 61.25}
VLLM: Times = {"queue": 0.75, "prefill": 61.5, "decode": 142.25}
TOLD: dict[tuple[str, bool], Times] = {  # milliseconds, by engine and whether it streams
    ("vllm", True): VLLM,
    ("vllm", False): VLLM,
    ("llamacpp", True): LLAMACPP,
    ("llamacpp", False): LLAMACPP,
    ("ollama", True): OLLAMA,
    ("ollama", False): OLLAMA,
    ("tgi", False): {"queue": 7.0, "inference": 242.0},
}
IN_HEADER = re.compile(r"engine-(\w+);dur=([\d.]+)")
IN_COMMENT = re.compile(r" engine_(\w+)_ms=([\d.]+)")


@every_engine
@both_ways
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_what_the_engine_tells_of_its_times_is_told(name: str, stream: bool, path: str) -> None:
    async with behind_weir(name, Say(timed=True)) as rig:
        reply = await rig.weir.post(r0(stream=stream, prompt="hi"), path)
    if stream:
        found = IN_COMMENT.findall(reply.body.decode())
    else:
        found = IN_HEADER.findall(reply.header("server-timing") or "")
    assert {key: float(value) for key, value in found} == pytest.approx(TOLD.get((name, stream), {}), abs=0.1)
