"""Where engines say that their time went: recorded ones, and nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import ADAPTERS
from adapters.engine_timings import tgi_timings, timings_in
from adapters.types import EngineTimings, GatewayRequest
from tests.adapters.recorded import Recording, recordings
from tests.fakes.answer_heads import answer_head

FORMS = {"timings": ("prompt_ms", "predicted_ms"), "metrics": ("time_to_first_token_ms", "generation_time_ms")}
ENGINES = {"llamacpp": "llamacpp", "vllm-flags": "vllm"}


def _told(recording: Recording) -> EngineTimings | None:
    """What a look at the raw body finds, last chunk first."""
    for line in reversed(recording.body.decode().splitlines()):
        text = line.removeprefix("data: ")
        if not text.startswith("{"):
            continue
        chunk: dict[str, Any] = json.loads(text)
        for form, (prefill, decode) in FORMS.items():
            if times := chunk.get(form):
                queue_ms = times.get("queue_time_ms")
                queue_s = None if queue_ms is None else queue_ms / 1e3
                return EngineTimings(queue_s, None, times[prefill] / 1e3, times[decode] / 1e3)
    return None


TIMED = [
    recording
    for recording in recordings(*ENGINES)
    if recording.path == "/v1/chat/completions" and recording.complete and _told(recording) is not None
]


@pytest.mark.parametrize("recording", TIMED, ids=lambda recording: recording.id)
def test_recorded_times_are_read(recording: Recording) -> None:
    streams = "event-stream" in recording.content_type
    body = recording.request
    request = GatewayRequest("r", "chat", recording.path, "POST", "m", streams, recording.request_body, body, 1)
    adapter = ADAPTERS[ENGINES[recording.folder]]
    if streams:
        decoder = adapter.stream_decoder(request)
        for piece in recording.pieces:
            decoder.feed(piece)
        assert decoder.timings == pytest.approx(_told(recording))
    else:
        reader = adapter.answer_reader(request, answer_head(recording.content_type), streamed=False)
        for piece in recording.pieces:
            reader.feed(piece)
        assert reader.close().timings == pytest.approx(_told(recording))


def test_there_are_recordings_of_both_forms_streamed_and_whole() -> None:
    assert {(r.folder, "event-stream" in r.content_type) for r in TIMED} == {
        (folder, streams) for folder in ENGINES for streams in (True, False)
    }


def test_tgi_tells_them_in_headers() -> None:
    head = answer_head(x_queue_time="7", x_inference_time="242.5", x_total_time="250")
    assert tgi_timings(head) == EngineTimings(queue_s=0.007, inference_s=0.2425)


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "-1", "1e400", "1e300"])
def test_what_is_no_duration_is_not_told(value: str) -> None:
    assert tgi_timings(answer_head(x_queue_time=value)) is None
    assert tgi_timings(answer_head(x_queue_time=value, x_inference_time="1")) == EngineTimings(inference_s=0.001)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    form=st.sampled_from(sorted(FORMS)),
    times=ANYTHING
    | st.fixed_dictionaries({"queue_time_ms": ANYTHING, "prompt_ms": ANYTHING, "predicted_ms": ANYTHING}),
)
def test_nonsense_is_no_time(form: str, times: Any) -> None:
    told = timings_in({form: times})
    assert told is None or all(time_s is None or 0 <= time_s < 1e8 for time_s in told)
