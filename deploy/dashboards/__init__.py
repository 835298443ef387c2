"""Grafana's dashboards, as code: ``python -m deploy.dashboards`` writes ``deploy/grafana/dashboards/*.json``."""

import warnings

# The SDK would rather have the newer schema; the older is what every Grafana since 10 takes from a file.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import dashboard, heatmap  # noqa: F401  # pyright: ignore[reportUnusedImport]
