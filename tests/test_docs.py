"""What the pages say of the engines is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from adapters import ADAPTERS
from adapters.capabilities import EVERYTHING, capabilities

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"


def test_the_table_of_what_engines_lack_is_the_codes() -> None:
    found = re.search(r"<!-- capabilities:.*?-->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    rows = ["| engine | lacks |", "| --- | --- |"]
    for name in sorted(ADAPTERS):
        lacks = sorted(EVERYTHING - capabilities(name))
        rows.append(f"| `{name}` | {', '.join(f'`{lack}`' for lack in lacks) or 'nothing known'} |")
    assert found[1].splitlines() == rows
