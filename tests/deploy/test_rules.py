"""Recording rules and alerts: Prometheus takes them, they fire when they should, and somebody is told what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
CASES = sorted((FOLDER / "tests").glob("*.yaml"))
PAGE = ROOT / "docs" / "alerts.md"
PROMTOOL, AMTOOL = shutil.which("promtool"), shutil.which("amtool")

needs_promtool = [
    pytest.mark.prometheus,
    pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing; on Debian: apt-get install prometheus"),
]
needs_amtool = [
    pytest.mark.prometheus,
    pytest.mark.skipif(AMTOOL is None, reason="amtool is missing; on Debian: apt-get install prometheus-alertmanager"),
]


def ran(tool: str | None, *arguments: str) -> str:
    """Runs it in the folder of the rules and returns its output; fails with what it said."""
    assert tool is not None
    done = subprocess.run((tool, *arguments), cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def alerts() -> list[Any]:
    return [rule for group in loaded(FOLDER / "rules" / "alerts.yaml")["groups"] for rule in group["rules"]]


ALERTS: list[str] = [alert["alert"] for alert in alerts()]


class TestWithPromtool:
    pytestmark = needs_promtool

    def test_prometheus_takes_configuration_and_rules(self) -> None:
        told = ran(PROMTOOL, "check", "config", "prometheus.yaml")
        assert "2 rule files found" in told
        ran(PROMTOOL, "check", "rules", *sorted(str(path) for path in (FOLDER / "rules").glob("*.yaml")))

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
    def test_alerts_fire_when_they_should(self, case: Path) -> None:
        ran(PROMTOOL, "test", "rules", str(case))


class TestWithAmtool:
    pytestmark = needs_amtool

    def test_alertmanager_takes_its_configuration(self) -> None:
        ran(AMTOOL, "check-config", "../alertmanager/alertmanager.yaml")

    @pytest.mark.parametrize(("severity", "receiver"), [("page", "page"), ("ticket", "ticket")])
    def test_who_is_told_depends_on_how_bad_it_is(self, severity: str, receiver: str) -> None:
        file = "--config.file=../alertmanager/alertmanager.yaml"
        told = ran(AMTOOL, "config", "routes", "test", file, f"severity={severity}")
        assert told.strip() == receiver


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_that_fires_and_one_that_does_not(alert: str) -> None:
    outcomes = {
        bool(check["exp_alerts"])
        for path in CASES
        for test in loaded(path)["tests"]
        for check in test["alert_rule_test"]
        if check["alertname"] == alert
    }
    assert outcomes == {True, False}


@pytest.mark.parametrize("alert", alerts(), ids=ALERTS)
def test_each_alert_says_how_bad_it_is_and_where_to_read_on(alert: Any) -> None:
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert alert["annotations"]["summary"]
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert ROOT / page == PAGE
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}
    assert anchor == alert["alert"].lower()


def test_the_page_tells_of_no_alert_that_does_not_exist() -> None:
    assert sorted(re.findall(r"^### (Weir\w+)$", PAGE.read_text(), re.MULTILINE)) == sorted(ALERTS)


def test_a_promise_is_looked_at_over_two_windows_and_with_some_traffic() -> None:
    (promises,) = [g for g in loaded(FOLDER / "rules" / "alerts.yaml")["groups"] if g["name"] == "weir-promises"]
    for alert in promises["rules"]:
        windows = re.findall(r":ratio_rate(\w+) > \(([\d.]+) \* ([\d.]+)\)", alert["expr"])
        assert len({window for window, _, _ in windows}) == 2, alert["alert"]
        assert len({(factor, budget) for _, factor, budget in windows}) == 1, alert["alert"]
        assert re.search(r"and weir:(streams|requests):rate\w+ > 0\.1", alert["expr"]), alert["alert"]


def test_alertmanager_speaks_of_alerts_that_exist() -> None:
    for rule in loaded(ROOT / "deploy" / "alertmanager" / "alertmanager.yaml")["inhibit_rules"]:
        for matcher in [*rule["source_matchers"], *rule["target_matchers"]]:
            found = re.fullmatch(r'alertname =~? "(.+)"', matcher)
            assert found is not None, matcher
            for name in found[1].split("|"):
                assert any(re.fullmatch(name, alert) for alert in ALERTS), name
