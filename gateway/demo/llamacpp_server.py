"""llama.cpp's own HTTP server over one GGUF file, ended with the process that started it.

The server is the C++ one; the package ``xllamacpp`` links it in, and this module only fills in its parameters.
"""

from __future__ import annotations

import argparse
import importlib
import signal
from pathlib import Path
from typing import Any

from .installation import ENGINE_PACKAGE
from .tether import tie_to_starter

CHAT_TEMPLATE = Path(__file__).with_name("chatml_tools.jinja")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway.demo.llamacpp_server", description=__doc__)
    parser.add_argument("--model", required=True, metavar="FILE", help="a GGUF file")
    parser.add_argument("--alias", required=True, metavar="NAME", help="the name that /v1/models lists")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one and prints it")
    parser.add_argument("--context", type=int, default=4096, help="tokens over all slots (%(default)s)")
    parser.add_argument("--slots", type=int, default=2, help="requests decoded together (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the computation (%(default)s)")
    return parser.parse_args(arguments)


def parameters(llamacpp: Any, options: argparse.Namespace) -> Any:
    """Returns the server's parameters; ``llamacpp`` is the module."""
    wanted = llamacpp.CommonParams()
    wanted.model.path = options.model
    wanted.model_alias = {options.alias}
    wanted.hostnames = [options.host]
    wanted.port = options.port
    wanted.n_ctx = options.context
    wanted.n_parallel = options.slots
    wanted.cpuparams.n_threads = options.threads
    wanted.cpuparams_batch.n_threads = options.threads
    wanted.n_gpu_layers = 0
    wanted.chat_template = CHAT_TEMPLATE.read_text()  # the model's own template knows no tools
    wanted.endpoint_metrics = True
    wanted.endpoint_slots = True
    wanted.ui = False
    return wanted


def main() -> None:
    """Serves until a signal, or the end of standard input, ends the process."""
    options = parse()
    # Nothing needs to be unwound; the default action also ends a process whose C++ code holds the interpreter.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tie_to_starter()
    llamacpp: Any = importlib.import_module(ENGINE_PACKAGE)
    server = llamacpp.Server(parameters(llamacpp, options))  # returns when the model is loaded
    print(f"llama.cpp on {server.listening_address}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
