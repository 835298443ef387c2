"""What a result was measured on: the machine, and the versions of all that was compared."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from install import installed_versions

REPO = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "memory_gib": round(memory_bytes / 2**30),
        "python": platform.python_version(),
    }


def target_version(target: dict[str, Any], replace: dict[str, str]) -> str:
    """The versions of a target's main packages, or what its ``version_cmd`` says; empty when neither is known."""
    if command := target.get("version_cmd"):
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return answer.stdout.strip().rsplit("/", 1)[-1]
    python = target.get("python", "")
    for name, value in replace.items():
        python = python.replace(f"@{name}@", value)
    found = installed_versions(python, target.get("packages", [])) if python else {}
    version = ", ".join(f"{name} {number}" for name, number in found.items())
    if "uvicorn" in found:  # the others are Python packages that bring a compiled program
        version = f"{version}, {interpreter(python)}"
    return f"{version} ({commit()})" if target["name"] == "weir" and version else version or target.get("version", "")


def interpreter(python: str) -> str:
    """Which Python it is, and when it was built: builds of one version differ in speed by a fifth."""
    code = "import platform as p; print(p.python_implementation(), p.python_version(), p.python_build())"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True).stdout.strip()


def commit() -> str:
    """The commit checked out, with a mark when files differ from it."""
    git = ["git", "-C", str(REPO)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if head.returncode:
        return "no commit"
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "gateway", "adapters", "policies"], stdout=subprocess.PIPE
    ).stdout
    return "commit " + head.stdout.decode().strip() + (" with changes" if changed else "")
