"""Every dashboard, by the name of its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from . import engines, gateway, overview, routing, streams

FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"


def texts() -> Mapping[str, str]:
    """Returns the JSON of each file; the same on every machine."""
    made = {
        "overview": overview.build(),
        "streams": streams.build(),
        "engines": engines.build(),
        "routing": routing.build(),
        "gateway": gateway.build(),
    }
    return {f"{name}.json": _text(builder.build()) for name, builder in made.items()}


def _text(board: Dashboard) -> str:
    for id, panel in enumerate(board.panels or (), start=1):
        panel.id_val = id
    plain = json.loads(JSONEncoder().encode(board))
    for shown in [*plain["links"], *plain["annotations"]["list"]]:
        del shown["placement"]  # the SDK knows one place only, a menu in which nobody looks
    return json.dumps(plain, indent=1, sort_keys=True) + "\n"
