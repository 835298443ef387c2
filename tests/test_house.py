"""The promises of the repository itself: what is shipped, who imports whom, what the files may not contain."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import gateway
from gateway.extras import how_to_install

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))
TARGETS = (
    "setup",
    "setup-clients",
    "setup-vllm",
    "fmt",
    "check",
    "test",
    "test-clients",
    "test-nginx",
    "test-node",
    "test-vllm",
    "bench",
    "bench-quick",
    "bench-routing",
    "run",
    "demo",
    "dashboards",
    "pictures",
    "fuzz",
)

REGISTRY = re.compile(
    r"(?<!emit-)index-url"
    r"|\"resolved\": *\"http"
    r"|\bregistry *= *\"?http"
    r"|\bpypi\.org/simple"
    r"|\bpythonhosted\.org"
    r"|\bregistry\.npmjs\."
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in the checkout, as if no make stood above it."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    }
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def tool(name: str) -> str:
    """The path of a command installed beside the Python that runs the tests."""
    return str(Path(sys.executable).with_name(name))


def project_files() -> list[Path]:
    """Every file that is tracked or about to be."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("git is missing, or this is no clone, so which files are tracked cannot be told")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    assert listed.returncode == 0, listed.stderr
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.Path(path)


def test_the_wheel_holds_the_three_packages_and_no_more(wheel: zipfile.Path) -> None:
    metadata = f"weir_gateway-{gateway.__version__}.dist-info"
    assert {entry.name for entry in wheel.iterdir()} == {"gateway", "adapters", "policies", metadata}


def test_the_wheel_holds_every_module_of_the_checkout(wheel: zipfile.Path) -> None:
    packages = ("gateway", "adapters", "policies")
    modules = {str(path.relative_to(ROOT)) for package in packages for path in (ROOT / package).rglob("*.py")}
    assert modules == {name for name in wheel.root.namelist() if name.endswith(".py")}


def test_the_wheel_brings_the_weir_command_and_refuses_to_be_uploaded(wheel: zipfile.Path) -> None:
    metadata = wheel / f"weir_gateway-{gateway.__version__}.dist-info"
    assert "weir = gateway.__main__:main" in (metadata / "entry_points.txt").read_text()
    lines = (metadata / "METADATA").read_text().splitlines()
    assert {
        "Name: weir-gateway",
        f"Version: {gateway.__version__}",
        "Requires-Python: >=3.11",
        "License-Expression: Apache-2.0",
        "Classifier: Private :: Do Not Upload",
    } <= set(lines)


def test_imports_point_one_way_and_the_leaves_do_no_io() -> None:
    contracts = run(tool("lint-imports"), "--no-cache")
    assert contracts.returncode == 0, contracts.stdout + contracts.stderr


def test_tests_have_no_init_file_that_would_hide_the_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    homes = re.compile(rb"(?<![\w.-])(?:/root|/home/\w+|/Users/\w+|%b)/" % re.escape(os.fsencode(ROOT)))
    found = {
        str(path.relative_to(ROOT)): hit[0] for path in project_files() if (hit := homes.search(path.read_bytes()))
    }
    assert found == {}


def test_no_file_names_the_address_of_a_package_registry() -> None:
    files = [path for path in project_files() if path != Path(__file__).resolve()]
    texts = {str(path.relative_to(ROOT)): path.read_bytes().decode(errors="replace") for path in files}
    assert {name: hit[0] for name, text in texts.items() if (hit := REGISTRY.search(text))} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pinned_requirement_has_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    requirements = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)
    assert requirements
    for requirement in requirements:
        assert re.match(r"[a-z0-9._-]+==\S", requirement)
        assert "--hash=sha256:" in requirement
    assert "://" not in text


def test_the_locked_versions_include_every_runtime_dependency() -> None:
    declared = {re.split(r"[^a-z0-9-]", dependency)[0] for dependency in PYPROJECT["project"]["dependencies"]}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/base.txt").read_text(), re.MULTILINE))
    assert declared <= locked


def test_the_demo_extra_and_the_demo_requirements_name_the_same_engine() -> None:
    (engine,) = PYPROJECT["project"]["optional-dependencies"]["demo"]
    assert engine in (ROOT / "requirements/demo.in").read_text().splitlines()


@pytest.mark.parametrize("target", TARGETS)
def test_the_makefile_knows_the_target_and_says_what_it_does(target: str) -> None:
    planned = run("make", "--dry-run", target)
    assert planned.returncode == 0, planned.stderr
    assert re.search(rf"^  {target} +\S", run("make", "--silent", "help").stdout, re.MULTILINE)


def test_the_changelog_opens_with_the_unreleased_version() -> None:
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == f"Unreleased ({gateway.__version__})"


def test_the_decision_records_are_numbered_without_gaps_and_say_all_four_things() -> None:
    records = sorted(path for path in (ROOT / "docs/adr").glob("[0-9]*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for path in records:
        headings = re.findall(r"^## (.*)", path.read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences", "What would change our mind"], path.name


EXTRA = re.compile(r"pip install -e '\.\[(\w+)\]'")


def test_what_pages_and_messages_tell_to_install_is_there() -> None:
    """Weir is on no index: an extra is installed from its sources."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = {extra for page in pages for extra in EXTRA.findall(page.read_text())}
    assert named == {"http2", "otlp", "plots"}
    assert named <= PYPROJECT["project"]["optional-dependencies"].keys()
    assert all(EXTRA.search(how_to_install(extra)) for extra in named)
    for path in [*pages, *(ROOT / "gateway").rglob("*.py")]:
        assert "weir-gateway[" not in path.read_text(), path
