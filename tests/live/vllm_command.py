"""The ``vllm`` command, ended with the process that started it; run by the Python of ``.venv-vllm``."""

from __future__ import annotations

import importlib
from typing import Any

from gateway.demo.tether import tie_to_starter

if __name__ == "__main__":  # and not in the processes that vLLM starts, which import this module again
    tie_to_starter()
    command: Any = importlib.import_module("vllm.entrypoints.cli.main")
    command.main()
