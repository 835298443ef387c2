"""What the demo, and the README, tell people to type."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from gateway.config.file import load
from gateway.demo.guide import guide
from gateway.metrics import Metrics
from tests.fakes.flown import fleet

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
DEMO_PAGE = (ROOT / "docs/demo.md").read_text()
GUIDE = guide("http://127.0.0.1:8081", "smollm2-135m", 2, "/tmp/weir-demo-a")


def code(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_snippets_use_the_address_and_the_model_that_are_served() -> None:
    assert GUIDE.count("http://127.0.0.1:8081/v1") == 3
    assert "http://127.0.0.1:8081/metrics" in GUIDE
    body = re.search(r"-d '(.*)'", GUIDE)
    assert body is not None
    assert json.loads(body[1])["model"] == "smollm2-135m"


def test_the_python_snippets_are_python() -> None:
    snippet = re.search(r"^  from openai.*?^$(?=\nMetrics)", GUIDE, re.MULTILINE | re.DOTALL)
    assert snippet is not None
    ast.parse(re.sub(r"^  ", "", snippet[0], flags=re.MULTILINE))
    for python in code(README, "python"):
        ast.parse(python)


def test_the_configuration_in_the_readme_is_valid(tmp_path: Path) -> None:
    (example,) = code(README, "yaml")
    (tmp_path / "weir.yaml").write_text(example)
    config = load(str(tmp_path / "weir.yaml"))
    assert list(config.pools) == ["llama-3-8b", "tiny"]


def test_the_configuration_on_the_demo_page_is_valid(tmp_path: Path) -> None:
    (example,) = code(DEMO_PAGE, "yaml")
    (tmp_path / "weir.yaml").write_text(example.replace("PORT", "8001", 1).replace("PORT", "8002", 1))
    assert load(str(tmp_path / "weir.yaml")).pools["smollm2-135m"].aliases == ("default",)


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_metric_that_the_readme_names_exists() -> None:
    families = {family.name for family in Metrics(fleet()).told}
    named = re.findall(r"`(weir_[a-z_]+)`", README)
    assert named
    assert [name for name in named if name not in families] == []


def test_the_demo_page_lists_every_option() -> None:
    source = (ROOT / "gateway/commands/demo.py").read_text()
    assert re.findall(r"^\| `(--[a-z]+)", DEMO_PAGE, re.MULTILINE) == re.findall(r'add_argument\("(--[a-z]+)"', source)
