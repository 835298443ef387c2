"""Pictures for the documentation: ``python -m deploy.pictures`` draws panels of the dashboards from a real run."""
