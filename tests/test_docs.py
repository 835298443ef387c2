"""What the pages say of the engines is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from adapters import ADAPTERS
from adapters.capabilities import EVERYTHING, capabilities
from adapters.engine_load import load_sources

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"


def table(name: str) -> list[str]:
    found = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_the_table_of_what_engines_lack_is_the_codes() -> None:
    rows = ["| engine | lacks |", "| --- | --- |"]
    for name in sorted(ADAPTERS):
        lacks = sorted(EVERYTHING - capabilities(name))
        rows.append(f"| `{name}` | {', '.join(f'`{lack}`' for lack in lacks) or 'nothing known'} |")
    assert table("capabilities") == rows


def test_the_table_of_where_engines_tell_their_load_is_the_codes() -> None:
    rows = ["| engine | asked | may tell |", "| --- | --- | --- |"]
    for name in sorted(ADAPTERS):
        sources = load_sources(name)
        rows += [f"| `{name}` | `{s.path}` | {', '.join(f'`{figure}`' for figure in s.tells)} |" for s in sources]
        rows += [] if sources else [f"| `{name}` | nothing | |"]
    assert table("load") == rows
