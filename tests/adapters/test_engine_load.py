"""What engines say of their load: recordings, the forms in their documents, and anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import ADAPTERS
from adapters.engine_load import JSON_BYTES, MOST_REQUESTS, UNKNOWN, EngineLoad, LoadSource, load_sources
from adapters.prometheus_text import MOST_SERIES, series
from adapters.types import AdapterError
from tests.adapters.recorded import FOLDER, read
from tests.fakes.dialects.answer import Load
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.script import joined

SOURCES = [(name, source) for name in sorted(ADAPTERS) for source in load_sources(name)]
EVERY_SOURCE = pytest.mark.parametrize(("name", "source"), SOURCES, ids=[f"{n}-{s.path}" for n, s in SOURCES])
WITHOUT = {"openai", "ollama", "trtllm"}


def at(name: str, path: str) -> LoadSource:
    return next(source for source in load_sources(name) if source.path.partition("?")[0] == path)


def vllm(*lines: str) -> EngineLoad:
    return at("vllm", "/metrics").read("\n".join(["# a comment", *lines, ""]).encode())


def loads(*ranks: Any) -> EngineLoad:
    return at("sglang", "/v1/loads").read(json.dumps({"version": "0.5.23", "loads": ranks}).encode())


def test_engines_without_a_load_are_those_that_tell_none() -> None:
    assert {name for name in ADAPTERS if not load_sources(name)} == WITHOUT
    assert load_sources("one that is not known") == ()


# --- what real engines sent, and what their documents say


@pytest.mark.parametrize(
    ("folder", "name", "load"),
    [
        ("vllm", "metrics_after", EngineLoad(0, 0, 0.0)),
        ("llamacpp", "metrics_after", EngineLoad(0, 0, None)),
        ("llamacpp", "slots", EngineLoad(0, None, None)),
    ],
)
def test_an_idle_engine_has_a_load_of_0_in_what_it_tells(folder: str, name: str, load: EngineLoad) -> None:
    recording = read(FOLDER / folder / f"{name}.res")
    assert at(folder, recording.path).read(recording.body) == load


def test_the_recorded_metrics_with_other_numbers() -> None:
    body = read(FOLDER / "vllm" / "metrics_after.res").body
    for name, value in (
        ("num_requests_running", b"3.0"),
        ("num_requests_waiting", b"2"),
        ("kv_cache_usage_perc", b"2.5e-1"),
    ):
        head = b"\nvllm:" + name.encode() + b'{engine="0",model_name="smollm2-135m"} '
        assert body.count(head) == 1
        body = body.replace(head + b"0.0", head + value)
    assert at("vllm", "/metrics").read(body) == EngineLoad(3, 2, 0.25)


@EVERY_SOURCE
def test_each_source_tells_what_it_says_that_it_tells(name: str, source: LoadSource) -> None:
    page = DIALECTS[name](load=Load(running=3, waiting=2, kv_usage_ratio=0.25)).pages()[source.path.partition("?")[0]]
    told = source.read(joined(page))
    expected = EngineLoad(3, 2, None if name == "llamacpp" else 0.25)._asdict()
    assert told._asdict() == {key: value if key in source.tells else None for key, value in expected.items()}


def test_old_names_are_read_where_the_new_ones_are_missing() -> None:
    assert vllm("vllm:gpu_cache_usage_perc 0.5").kv_usage_ratio == 0.5
    assert vllm("vllm:gpu_cache_usage_perc 0.5", "vllm:kv_cache_usage_perc 0.25").kv_usage_ratio == 0.25
    old = b"llamacpp:kv_cache_usage_ratio 0.75\nllamacpp:requests_processing 1\n"
    assert at("llamacpp", "/metrics").read(old) == EngineLoad(1, None, 0.75)


def test_the_load_of_tgi_is_in_tokens() -> None:
    read_tgi = at("tgi", "/metrics").read
    sizes = b"tgi_batch_current_size 4\ntgi_queue_size 1\n"
    assert read_tgi(sizes) == EngineLoad(4, 1, None)
    assert (
        read_tgi(sizes + b"tgi_batch_current_max_tokens 900\ntgi_batch_max_total_tokens 1000\n").kv_usage_ratio == 0.9
    )
    assert read_tgi(sizes + b"tgi_batch_current_max_tokens 1001\ntgi_batch_max_total_tokens 1000\n").kv_usage_ratio == 1
    assert read_tgi(b"tgi_batch_current_max_tokens 900\ntgi_batch_max_total_tokens 0\n") == UNKNOWN


# --- several series


def test_ranks_are_one_load() -> None:
    told = vllm(
        'vllm:num_requests_running{engine="0"} 3.0',
        'vllm:num_requests_running{engine="1"} 1.0',
        'vllm:num_requests_waiting{engine="0"} 0.0',
        'vllm:num_requests_waiting{engine="1"} 7.0',
        'vllm:kv_cache_usage_perc{engine="0"} 0.9',
        'vllm:kv_cache_usage_perc{engine="1"} 0.1',
    )
    assert told == EngineLoad(4, 7, 0.9)
    rank = {"num_running_reqs": 2, "num_waiting_reqs": 1, "token_usage": 0.25}
    assert loads(rank, {**rank, "dp_rank": 1, "token_usage": 0.5}) == EngineLoad(4, 2, 0.5)
    assert at("lightllm", "/token_load").read(b'{"current_load": [0.25, 0.75]}').kv_usage_ratio == 0.75


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e400", "1e299", str(MOST_REQUESTS + 1)])
def test_what_is_no_count_is_unknown_and_so_is_a_sum_with_it(value: str) -> None:
    told = vllm('vllm:num_requests_running{engine="0"} 3', f'vllm:num_requests_running{{engine="1"}} {value}')
    assert told.running is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-0.1", "1.01", "37"])
def test_what_is_no_share_is_unknown(value: str) -> None:
    assert vllm(f"vllm:kv_cache_usage_perc {value}").kv_usage_ratio is None


@pytest.mark.parametrize("value", [None, "3", True, -1, [], {}, 1e400, 2**70, 10**400])
def test_json_that_is_no_count_is_unknown(value: Any) -> None:
    rank = {"num_running_reqs": value, "num_waiting_reqs": 1, "token_usage": 0.25}
    assert loads(rank) == EngineLoad(None, 1, 0.25)


# --- the text


def test_names_are_whole_names() -> None:
    told = vllm(
        "vllm:num_requests_waiting_by_reason 9",
        "xvllm:num_requests_running 9",
        "# vllm:num_requests_running 9",
        'other{a="vllm:num_requests_running 9"} 9',
    )
    assert told == UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "g 1.5",
        "g\t1.5",
        "g   1.5  ",
        "g{} 1.5",
        'g{a="b"} 1.5',
        'g{a="b"}1.5',
        'g {a="b",} 1.5',
        'g{a="}",b="\\"{",c="\\\\"} 1.5',
        'g{a="b"} 1.5 1700000000000',
        'g{a="b"} 15e-1\r',
    ],
)
@pytest.mark.parametrize("text", ["{}", "{}\n", "a 1\n{}\nb 2\n", "# HELP g {{ g 1\n{}\n"])
def test_a_sample_may_be_written_in_many_ways(line: str, text: str) -> None:
    assert series(text.format(line).encode(), b"g") == [1.5]


@pytest.mark.parametrize("line", ["g", "g ", "g one", 'g{a="b"}', 'g{a="b" 1', "g{1"])
def test_a_line_that_is_no_sample_is_an_error(line: str) -> None:
    with pytest.raises(AdapterError):
        series(f"a 1\n{line}\nb 2\n".encode(), b"g")


def test_series_without_end_are_an_error() -> None:
    assert len(series(b"g 1\n" * (MOST_SERIES - 1), b"g")) == MOST_SERIES - 1
    for line in (b"g 1\n", b"g_other 1\n"):
        with pytest.raises(AdapterError, match="series"):
            series(line * MOST_SERIES, b"g")


# --- anything


@EVERY_SOURCE
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"null", b"<html>log in</html>", b"[" * 100_000, b"\xff\x00\n" * 9]
)
def test_another_answer_tells_nothing(name: str, source: LoadSource, body: bytes) -> None:
    with suppress(AdapterError):
        assert source.read(body) == UNKNOWN


def test_json_that_is_too_long_is_not_read() -> None:
    with pytest.raises(AdapterError, match="long"):
        at("sglang", "/v1/loads").read(b" " * JSON_BYTES + b'{"loads": [{}]}')


NAMES = [b"vllm:num_requests_running", b"vllm:kv_cache_usage_perc", b"tgi_queue_size", b"lmdeploy:gpu_cache_usage_perc"]
PIECES = [*NAMES, b"\n", b" ", b"{", b"}", b'a="b"', b"\\", b"1", b"-1", b"NaN", b"1e999", b"0.5", b"#"]
TEXTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=30).map(b"".join)
KEYS = st.sampled_from(
    ["loads", "current_load", "is_processing", "num_running_reqs", "num_waiting_reqs", "token_usage"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@settings(deadline=None)
@given(body=st.binary() | TEXTS | VALUES.map(lambda value: json.dumps(value).encode()), source=st.sampled_from(SOURCES))
def test_any_bytes_are_a_load_within_its_bounds_or_an_adapter_error(
    body: bytes, source: tuple[str, LoadSource]
) -> None:
    try:
        load = source[1].read(body)
    except AdapterError:
        return
    assert all(count is None or 0 <= count <= MOST_REQUESTS for count in (load.running, load.waiting))
    assert load.kv_usage_ratio is None or 0 <= load.kv_usage_ratio <= 1


KNOWN = st.builds(EngineLoad, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.none() | st.floats(0, 1))


@given(first=KNOWN, second=KNOWN)
def test_what_was_told_first_stays(first: EngineLoad, second: EngineLoad) -> None:
    both = first.completed_by(second)
    for ours, theirs, figure in zip(first, second, both, strict=True):
        assert figure == (theirs if ours is None else ours)
