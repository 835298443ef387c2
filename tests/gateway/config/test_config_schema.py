"""The JSON schema of the configuration, and the page that explains its keys."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.file import parse
from gateway.config.problems import ConfigError
from gateway.config.promised import KEYS
from gateway.config.schema import blocks, config_schema

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
VALIDATOR: Any = importlib.import_module("jsonschema").Draft202012Validator  # the package has no types


def validator() -> Any:
    schema = config_schema()
    VALIDATOR.check_schema(schema)
    return VALIDATOR(schema)


def heading(block: tuple[str, ...]) -> str:
    """How the page names a block: ``pools.*.endpoints[]``."""
    return re.sub(r"(endpoints|keep|rules)\.\*", r"\1[]", f"`{'.'.join(block)}`") if block else "The top level"


def section(block: tuple[str, ...]) -> str:
    match = re.search(rf"^## {re.escape(heading(block))}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, f"docs/configuration.md has no section {heading(block)}"
    return match[1]


def documented_default(block: tuple[str, ...], key: str) -> str | None:
    """The second cell of the row whose first cell names the key."""
    for row in section(block).splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if row.startswith("|") and f"`{key}`" in cells[0]:
            return cells[1]
    return None


def test_the_schema_accepts_the_example() -> None:
    validator().validate(yaml.safe_load((ROOT / "examples" / "weir.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        "pools: {m: {endpoints: [http://u]}, n: {endpoints: [{url: http://u, api_key: k}]}}",
        "{pools: {m: {endpoints: [http://u]}}, shutdown: {drain: 0}}",
        "{pools: {m: {endpoints: [http://u]}}, stream: {keepalive: 500ms, buffer: 1.5MiB}}",
        "{pools: {m: {endpoints: [http://u]}}, stream: {keepalive: 10}}",
        "{pools: {m: {endpoints: [http://u]}}, stream: {buffer: 10 MB}}",
        "{pools: {m: {endpoints: [http://u]}}, shutdown: {drain: 3}}",
        "{pools: {m: {endpoints: [http://u], name: m}}}",
        "{pools: {m: {endpoints: []}}}",
        "{pools: {}}",
        "{}",
        "{pools: {m: {endpoints: [http://u], retries: {budget: 2}}}}",
        "{pools: {m: {endpoints: [{url: http://u, engine: tgi}]}}}",
        "{pools: {m: {endpoints: [http://u]}}, keys: []}",
    ],
)
def test_the_schema_and_the_reader_agree(text: str) -> None:
    errors = list(validator().iter_errors(yaml.safe_load(text)))
    try:
        parse(text, "weir.yaml", {})
    except ConfigError:
        assert errors
    else:
        assert not errors


def test_every_key_has_a_description() -> None:
    silent = [
        ".".join((*block, key))
        for block, keys in blocks().items()
        for key, schema in keys.items()
        if "description" not in schema and "$ref" not in schema
    ]
    assert silent == []


def test_defaults_are_written_with_their_units() -> None:
    assert blocks()["pools", "*", "timeouts"]["total"]["default"] == "30m"
    assert blocks()["limits_http",]["body"]["default"] == "64MiB"


@pytest.mark.parametrize("block", sorted(blocks()))
def test_the_page_names_every_key_with_its_default(block: tuple[str, ...]) -> None:
    for key, schema in blocks()[block].items():
        told = documented_default(block, key)
        assert told is not None, f"docs/configuration.md does not name {'.'.join((*block, key))}"
        default: Any = schema.get("default")
        if default is not None:
            assert told == f"`{default if isinstance(default, str) else json.dumps(default)}`"


@pytest.mark.parametrize("block", sorted(blocks()))
def test_the_page_names_no_key_that_does_not_exist(block: tuple[str, ...]) -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", section(block), re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    assert named == set(blocks()[block])


def test_the_page_names_every_key_that_is_not_supported_yet() -> None:
    for path in KEYS:
        assert f"`{'.'.join(path)}`" in section(()) + PAGE.partition("## Not supported yet")[2]
