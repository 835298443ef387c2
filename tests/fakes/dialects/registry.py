"""Every scripted engine by its name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.dialects.lightllm import LightllmDialect
from tests.fakes.dialects.llamacpp import LlamacppDialect
from tests.fakes.dialects.lmdeploy import LmdeployDialect
from tests.fakes.dialects.ollama import OllamaDialect
from tests.fakes.dialects.serving import Dialect
from tests.fakes.dialects.sglang import SglangDialect
from tests.fakes.dialects.tgi import TgiDialect
from tests.fakes.dialects.trtllm import TrtllmDialect
from tests.fakes.dialects.vllm import VllmDialect

_ALL: tuple[type[Dialect], ...] = (
    VllmDialect,
    SglangDialect,
    LlamacppDialect,
    TgiDialect,
    OllamaDialect,
    LightllmDialect,
    LmdeployDialect,
    TrtllmDialect,
)

DIALECTS: Mapping[str, type[Dialect]] = {dialect.name: dialect for dialect in _ALL}
