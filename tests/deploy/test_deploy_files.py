"""The files in ``deploy/`` fit together: what one names, the other has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gateway.config.file import parse

DEPLOY = Path(__file__).parents[2] / "deploy"


def loaded(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


COMPOSE: Any = loaded("compose.yaml")
SOURCES: Any = loaded("grafana/provisioning/datasources/weir.yaml")["datasources"]


def strings(value: Any) -> Iterator[str]:
    """Every text in it, however deep."""
    if isinstance(value, dict):
        for one in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:  # pyright: ignore[reportUnknownVariableType]
            yield from strings(one)
    elif isinstance(value, str):
        yield value


def test_every_image_but_ours_is_of_one_version() -> None:
    images = {name: service["image"] for name, service in COMPOSE["services"].items()}
    ours = {name for name, image in images.items() if image == "weir"}
    assert ours == {"weir", "engine-1", "engine-2"}
    for name in images.keys() - ours:
        assert re.search(r":v?\d+\.\d+\.\d+$", images[name]), name


def test_what_is_mounted_exists() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]


def test_whom_a_service_waits_for_exists() -> None:
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", ())) <= COMPOSE["services"].keys()


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_host_that_is_named_is_a_service() -> None:
    files = ["prometheus/prometheus.yaml", "tempo/tempo.yaml", "loki/loki.yaml", "otel-collector/collector.yaml"]
    files += ["weir.yaml", "grafana/provisioning/datasources/weir.yaml", "compose.yaml"]
    for file in files:
        for text in strings(loaded(file)):
            for host in re.findall(r"(?:^|http://)([a-z][a-z0-9-]*):\d{2,5}(?:/|$)", text):
                assert host in COMPOSE["services"], f"{host} in {file}"


def test_weir_takes_its_configuration() -> None:
    config = parse((DEPLOY / "weir.yaml").read_text(), source="weir.yaml", environ={})
    assert config.listen_port == 8080


def test_engines_are_scraped_under_the_names_that_weir_gives_them() -> None:
    jobs = {job["job_name"]: job["static_configs"] for job in loaded("prometheus/prometheus.yaml")["scrape_configs"]}
    config = parse((DEPLOY / "weir.yaml").read_text(), source="weir.yaml", environ={})
    endpoints = {e.url.removeprefix("http://"): e.id for pool in config.pools.values() for e in pool.endpoints}
    assert {s["targets"][0]: s["labels"]["endpoint"] for s in jobs["engines"]} == endpoints
    assert [s["targets"] for s in jobs["weir"]] == [["weir:8080"]]


def test_prometheus_keeps_exemplars_and_takes_what_tempo_writes() -> None:
    assert {"--enable-feature=exemplar-storage", "--web.enable-remote-write-receiver"} <= set(
        COMPOSE["services"]["prometheus"]["command"]
    )
    (write,) = loaded("tempo/tempo.yaml")["metrics_generator"]["storage"]["remote_write"]
    assert write == {"url": "http://prometheus:9090/api/v1/write", "send_exemplars": True}


def test_grafana_leads_from_metrics_to_traces_to_logs_and_back() -> None:
    by_uid = {source["uid"]: source for source in SOURCES}
    assert by_uid.keys() == {"prometheus", "tempo", "loki"}
    (exemplars,) = by_uid["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplars == {"name": "trace_id", "datasourceUid": "tempo"}
    tempo = by_uid["tempo"]["jsonData"]
    assert (tempo["tracesToLogsV2"]["datasourceUid"], tempo["tracesToLogsV2"]["filterByTraceID"]) == ("loki", True)
    assert tempo["serviceMap"]["datasourceUid"] == tempo["tracesToMetrics"]["datasourceUid"] == "prometheus"
    (field,) = by_uid["loki"]["jsonData"]["derivedFields"]
    assert (field["matcherRegex"], field["datasourceUid"], field["url"]) == ("trace_id", "tempo", "$${__value.raw}")


def test_grafanas_interval_is_that_of_the_scrapes() -> None:
    interval = loaded("prometheus/prometheus.yaml")["global"]["scrape_interval"]
    assert SOURCES[0]["jsonData"]["timeInterval"] == interval


def test_grafana_finds_the_dashboards_where_they_are_mounted() -> None:
    (provider,) = loaded("grafana/provisioning/dashboards/weir.yaml")["providers"]
    grafana = COMPOSE["services"]["grafana"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert json.loads((DEPLOY / "grafana" / "dashboards" / home.name).read_text())["uid"] == "weir-overview"


def test_the_collectors_pipelines_are_made_of_what_it_has() -> None:
    collector = loaded("otel-collector/collector.yaml")
    for name, pipeline in collector["service"]["pipelines"].items():
        for kind, parts in pipeline.items():
            assert set(parts) <= collector[kind].keys(), f"{kind} of {name}"
    used = {part for p in collector["service"]["pipelines"].values() for parts in p.values() for part in parts}
    assert used == {*collector["receivers"], *collector["processors"], *collector["exporters"]}


def test_traces_of_weir_and_of_engines_come_to_the_same_collector() -> None:
    collector = loaded("otel-collector/collector.yaml")
    assert set(collector["receivers"]["otlp"]["protocols"]) == {"grpc", "http"}
    sent_to = COMPOSE["services"]["weir"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert sent_to == "http://otel-collector:4318"
    assert set(loaded("tempo/tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]) == {"grpc", "http"}


def test_the_access_log_is_read_where_it_is_written() -> None:
    (path,) = loaded("otel-collector/collector.yaml")["receivers"]["filelog"]["include"]
    assert path in COMPOSE["services"]["weir"]["entrypoint"][-1]
    folder = str(Path(path).parent)
    assert f"access-log:{folder}" in COMPOSE["services"]["weir"]["volumes"]
    assert f"access-log:{folder}:ro" in COMPOSE["services"]["otel-collector"]["volumes"]


def test_the_image_gets_all_that_its_recipe_copies() -> None:
    recipe = (DEPLOY / "Dockerfile").read_text()
    given = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line.startswith("!")}
    copied = {word for line in recipe.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]}
    assert copied == given
    assert all((DEPLOY.parent / name).exists() for name in copied)
