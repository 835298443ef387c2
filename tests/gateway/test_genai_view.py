"""The same numbers by the names of the GenAI conventions."""

from __future__ import annotations

import pytest

from gateway.config import MetricsConfig
from gateway.instruments.exposition import OPENMETRICS, TEXT, Format
from gateway.metrics import Metrics
from tests.fakes.flown import fleet, fly, record, samples, total

FAMILIES = {
    "gen_ai_server_time_to_first_token_seconds",
    "gen_ai_server_time_per_output_token_seconds",
    "gen_ai_server_request_duration_seconds",
    "gen_ai_client_token_usage",
}


def subject(*engines: str) -> Metrics:
    return Metrics(fleet(*engines), options=MetricsConfig(genai_names=True))


def test_they_are_not_told_unless_asked_for() -> None:
    metrics = Metrics(fleet())
    fly(metrics)
    assert "gen_ai" not in metrics.render()


@pytest.mark.parametrize("format", [TEXT, OPENMETRICS])
def test_a_stream_is_in_every_family(format: Format) -> None:
    metrics = subject("tgi")
    fly(metrics, ttft_s=0.2)
    text = metrics.render(format)
    read = samples(text)
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE gen_ai")} == FAMILIES
    labels = {"gen_ai_request_model": "m", "gen_ai_provider_name": "tgi"}
    for name, value in {
        "gen_ai_server_time_to_first_token_seconds": 0.2,
        "gen_ai_server_time_per_output_token_seconds": 0.2,
        "gen_ai_server_request_duration_seconds": 0.9,
    }.items():
        assert total(read, f"{name}_count", **labels) == 1, name
        assert total(read, f"{name}_sum", **labels) == pytest.approx(value), name
    assert total(read, "gen_ai_client_token_usage_sum", gen_ai_token_type="input", **labels) == 7
    assert total(read, "gen_ai_client_token_usage_sum", gen_ai_token_type="output", **labels) == 4
    assert total(read, "gen_ai_client_token_usage_bucket", gen_ai_token_type="output", le="4.0") == 1
    assert total(read, "gen_ai_client_token_usage_count", gen_ai_token_type="input", **labels) == 1


def test_endpoints_of_one_engine_are_one_series_and_others_apart() -> None:
    metrics = subject("vllm", "vllm", "tgi")
    for endpoint in ("e0", "e1", "e2"):
        fly(metrics, endpoint=endpoint)
    read = samples(metrics.render())
    name = "gen_ai_server_time_per_output_token_seconds_count"
    assert total(read, name, gen_ai_provider_name="vllm") == 2
    assert total(read, name, gen_ai_provider_name="tgi") == 1
    # TTFT is the pool's, which speaks no one dialect
    assert total(read, "gen_ai_server_time_to_first_token_seconds_count", gen_ai_provider_name="weir") == 3


def test_errors_have_a_type_and_a_client_that_left_is_none() -> None:
    metrics = subject()
    for outcome in ("ok", "cancelled", "timeout"):
        metrics.observe((record(outcome=outcome),))
    read = samples(metrics.render())
    name = "gen_ai_server_request_duration_seconds_count"
    assert {dict(labels).get("error_type"): value for (key, labels), value in read.items() if key == name} == {
        None: 2,
        "timeout": 1,
    }
    assert total(read, name, gen_ai_operation_name="chat") == 3
