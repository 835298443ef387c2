"""What real engines sent, replayed through the adapters: whole, cut at every byte, and cut at random.

What should come out is computed here from the recording by plain reading of its events, not by the adapters' code.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import ADAPTERS
from adapters.types import Adapter, AdapterError, EngineFailed, GatewayRequest, Operation, TruncatedStream, Usage
from tests.adapters import framing_reference as reference
from tests.adapters.recorded import Recording, recordings
from tests.fakes.answer_heads import answer_head

Json = dict[str, Any]

CLIENT_MODEL = "the-client's-name"
OPERATIONS: dict[str, Operation] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
KNOWN = [r for r in recordings() if r.path in OPERATIONS]
STREAMS = [r for r in KNOWN if r.status == 200 and "event-stream" in r.content_type]
ANSWERS = [r for r in KNOWN if r.status == 200 and r.body.startswith(b"{")]
REFUSALS = [r for r in recordings() if r.status >= 400]


def own_adapter(recording: Recording) -> Adapter:
    return ADAPTERS.get(recording.folder.partition("-")[0], ADAPTERS["openai"])


def with_own_adapter(known: list[Recording]) -> pytest.MarkDecorator:
    """Runs a test with each recording, read by the adapter of its own engine, or the one for any if it has none."""
    return pytest.mark.parametrize(
        ("adapter", "recording"), [pytest.param(own_adapter(r), r, id=f"{own_adapter(r).name}<{r.id}") for r in known]
    )


def with_both_adapters(known: list[Recording]) -> pytest.MarkDecorator:
    """Runs a test with each recording, read by the adapter of its own engine and by the one for any engine."""
    pairs = [
        (adapter, r) for r in known for adapter in {a.name: a for a in (own_adapter(r), ADAPTERS["openai"])}.values()
    ]
    return pytest.mark.parametrize(
        ("adapter", "recording"), [pytest.param(adapter, r, id=f"{adapter.name}<{r.id}") for adapter, r in pairs]
    )


def request_of(recording: Recording, *, model: str = CLIENT_MODEL, without: tuple[str, ...] = ()) -> GatewayRequest:
    """The call of a client that makes Weir send what was recorded; ``without`` names fields it did not send."""
    body = {key: value for key, value in recording.request.items() if key not in without}
    body["model"] = model
    return GatewayRequest(
        request_id="r1",
        operation=OPERATIONS[recording.path],
        path=recording.path,
        method=recording.method,
        model=model,
        stream=bool(body.get("stream")),
        raw=json.dumps(body).encode(),
        body=body,
        created_unix_s=0,
    )


# --- what comes out


@dataclass(frozen=True, slots=True)
class Replay:
    """What a decoder said of one body."""

    out: bytes
    outputs: int
    usage: Usage | None
    finished: bool
    error: tuple[int, str] | None
    raised: str | None


def replay(adapter: Adapter, request: GatewayRequest, pieces: Iterable[bytes]) -> Replay:
    decoder = adapter.stream_decoder(request)
    out: list[bytes] = []
    raised: str | None = None
    try:
        for piece in pieces:
            out.append(decoder.feed(piece))
            assert not out[-1] or out[-1].endswith(b"\n\n"), "not whole frames"
        out.append(decoder.close())
    except AdapterError as failure:
        raised = f"{type(failure).__name__}: {failure}"
    error = decoder.error
    told = (error.status, error.message) if isinstance(error, EngineFailed) else None
    return Replay(b"".join(out), decoder.outputs, decoder.usage, decoder.finished, told, raised)


def chunks_of(out: bytes) -> list[Json]:
    """Reads the frames for the client: one ``data: `` line of JSON each, and nothing else."""
    blocks = out.split(b"\n\n")
    assert blocks.pop() == b""
    for block in blocks:
        assert block.startswith(b"data: {")
        assert b"\n" not in block
        assert b"\r" not in block
    return [json.loads(block[6:]) for block in blocks]


# --- what should come out


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plain reader makes of a recorded stream.

    Attributes:
        chunks: Those with choices, up to the one that says that the answer is broken, as the client should see them.
        usage: All usage objects, in order.
        error: The engine's message, if it sent one.
        aborted: A finish reason says that the answer is not whole.
        whole: Every choice has a finish reason of the engine's own accord.
    """

    chunks: list[Json]
    usage: list[Json]
    error: str | None
    aborted: bool
    whole: bool


def recorded_frames(recording: Recording) -> list[bytes]:
    """The events that hold a chunk or an error; llama.cpp begins the stream of a batch with ``data: null``."""
    frames = reference.sse(recording.body, 1 << 20).frames
    return [frame for frame in frames if frame not in (b"[DONE]", b"null")]


def recorded_chunks(recording: Recording) -> list[Json]:
    return [json.loads(frame) for frame in recorded_frames(recording)]


@cache
def plain_reading(recording_id: str) -> Expected:
    recording = next(r for r in STREAMS if r.id == recording_id)
    keeps_usage = bool(recording.request.get("stream_options", {}).get("continuous_usage_stats"))
    chunks: list[Json] = []
    usage: list[Json] = []
    error: str | None = None
    finish: dict[int, str | None] = {}
    called: set[int] = set()
    aborted = False
    for payload in recorded_chunks(recording):
        if "error" in payload:
            error = payload["error"] if isinstance(payload["error"], str) else payload["error"]["message"]
            break
        if payload.get("usage"):
            usage.append(payload["usage"])
        if not payload["choices"]:
            continue
        for choice in payload["choices"]:
            index = choice["index"]
            finish[index] = choice.get("finish_reason") or finish.get(index)
            aborted |= finish[index] == "abort"
            if choice.get("delta", {}).get("tool_calls"):
                called.add(index)
            if index in called and choice.get("finish_reason") == "stop":
                choice["finish_reason"] = "tool_calls"
        if aborted:
            break
        chunk: Json = {**payload, "model": CLIENT_MODEL}
        if chunk.get("usage") and not keeps_usage:
            del chunk["usage"]
        chunks.append(chunk)
    whole = bool(finish) and all(finish.values()) and error is None and not aborted
    return Expected(chunks, usage, error, aborted, whole)


def joined_text(chunks: Iterable[Json]) -> dict[tuple[int, str], str]:
    """All text by choice and kind: content, text, tool call names and arguments."""
    texts: defaultdict[tuple[int, str], str] = defaultdict(str)
    for chunk in chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            texts[index, "text"] += choice.get("text") or ""
            delta: Json = choice.get("delta") or {}
            for key in ("content", "reasoning", "reasoning_content"):
                texts[index, key] += delta.get(key) or ""
            for call in delta.get("tool_calls") or ():
                for key in ("name", "arguments"):
                    texts[index, f"{call['index']} {key}"] += call["function"].get(key) or ""
    return {key: text for key, text in texts.items() if text}


def outputs_in(chunks: Iterable[Json]) -> int:
    return sum(bool(joined_text([chunk])) for chunk in chunks)


def expected_usage(adapter: Adapter, recording: Recording) -> Usage | None:
    """The last usage object says it all; llama.cpp says it for each choice (engines' pages)."""
    parts = plain_reading(recording.id).usage
    if not parts:
        return None
    prompt_tokens, completion_tokens = parts[-1]["prompt_tokens"], parts[-1]["completion_tokens"]
    if adapter.name == "llamacpp":
        prompt_tokens = sum(part["prompt_tokens"] for part in parts) // recording.request.get("n", 1)
        completion_tokens = sum(part["completion_tokens"] for part in parts)
    details: Json = parts[-1].get("prompt_tokens_details") or {}
    return Usage(prompt_tokens, completion_tokens, details.get("cached_tokens"))


# --- streams


@with_both_adapters(STREAMS)
def test_every_chunk_reaches_the_client_as_the_engine_wrote_it_but_for_the_model(
    adapter: Adapter, recording: Recording
) -> None:
    expected = plain_reading(recording.id)
    chunks = chunks_of(replay(adapter, request_of(recording), recording.pieces).out)
    assert [chunk for chunk in chunks if chunk["choices"]] == expected.chunks
    assert joined_text(chunks) == joined_text(expected.chunks)
    assert all(chunk["model"] == CLIENT_MODEL for chunk in chunks)


@with_both_adapters(STREAMS)
def test_a_client_that_uses_the_engines_own_model_name_gets_the_engines_own_bytes(
    adapter: Adapter, recording: Recording
) -> None:
    named = next((chunk for chunk in recorded_chunks(recording) if "model" in chunk), {"model": "any"})
    request = request_of(recording, model=named["model"])
    out = replay(adapter, request, recording.pieces).out
    for chunk, frame in zip(recorded_chunks(recording), recorded_frames(recording), strict=True):
        plain = chunk.get("choices") and not chunk.get("usage")
        if plain and not any(choice.get("finish_reason") for choice in chunk["choices"]):
            assert b"data: " + frame + b"\n\n" in out


@with_both_adapters(STREAMS)
def test_outputs_are_the_chunks_that_carry_something(adapter: Adapter, recording: Recording) -> None:
    assert replay(adapter, request_of(recording), recording.pieces).outputs == outputs_in(
        plain_reading(recording.id).chunks
    )


@with_both_adapters(STREAMS)
def test_a_stream_is_finished_only_if_every_choice_has_a_finish_reason(adapter: Adapter, recording: Recording) -> None:
    expected = plain_reading(recording.id)
    got = replay(adapter, request_of(recording), recording.pieces)
    assert got.finished == expected.whole
    if expected.whole:
        assert (got.raised, got.error) == (None, None)
    elif expected.error is not None:
        assert got.raised == f"EngineFailed: {expected.error}"
        assert got.error is not None
        assert got.error[1] == expected.error
        assert 400 <= got.error[0] <= 599
    elif expected.aborted:
        assert got.error is not None
        assert got.raised is not None
        assert got.raised.startswith("EngineFailed: ")
    else:
        assert got.raised is not None
        assert got.raised.startswith("TruncatedStream: ")


def test_a_stream_that_the_engines_death_cut_is_never_finished() -> None:
    cut = [r for r in STREAMS if r.name.startswith("stream_cut_by_")]
    assert len(cut) == 4
    for recording in cut:
        for adapter in (ADAPTERS["openai"], own_adapter(recording)):
            got = replay(adapter, request_of(recording), recording.pieces)
            assert got.outputs > 50
            assert not got.finished
            assert got.raised is not None


@with_both_adapters(STREAMS)
def test_a_whole_stream_cut_short_anywhere_before_its_last_finish_reason_is_not_finished(
    adapter: Adapter, recording: Recording
) -> None:
    if not plain_reading(recording.id).whole:
        return
    request = request_of(recording)
    frames = [frame + b"\n\n" for frame in recording.body.split(b"\n\n") if frame]
    last = max(i for i, frame in enumerate(frames) if b'"finish_reason":"' in frame)
    for kept in range(last + 1):
        got = replay(adapter, request, [b"".join(frames[:kept])])
        assert not got.finished
        assert got.raised is not None
        assert got.raised.startswith("TruncatedStream: ")
    half = frames[last][: len(frames[last]) // 2]
    got = replay(adapter, request, [*frames[:last], half])
    assert not got.finished
    assert got.raised is not None
    assert got.raised.startswith("TruncatedStream: ")


@with_both_adapters(STREAMS)
def test_a_client_sees_usage_once_at_the_end_if_it_asked_and_never_if_it_did_not(
    adapter: Adapter, recording: Recording
) -> None:
    expected = plain_reading(recording.id)
    for request in (request_of(recording), request_of(recording, without=("stream_options",))):
        got = replay(adapter, request, recording.pieces)
        chunks = chunks_of(got.out)
        without_choices = [chunk for chunk in chunks if not chunk["choices"]]
        if not request.wants_usage:
            assert without_choices == []
            assert not any(chunk.get("usage") for chunk in chunks)
        elif expected.whole:
            assert without_choices == chunks[-1:]
            usage = chunks[-1]["usage"]
            assert got.usage is not None
            assert usage["prompt_tokens"] == got.usage.prompt_tokens
            assert usage["completion_tokens"] == got.usage.completion_tokens
            assert usage["total_tokens"] == got.usage.prompt_tokens + got.usage.completion_tokens
            assert not any(key.startswith("_") for key in usage)
        else:
            assert without_choices == []


@with_both_adapters(STREAMS)
def test_usage_is_what_the_engine_counted(adapter: Adapter, recording: Recording) -> None:
    if adapter.name == "openai" and recording.folder.startswith("llamacpp") and "n2" in recording.name + "batch":
        return  # usage for each choice is llama.cpp's own way
    got = replay(adapter, request_of(recording), recording.pieces).usage
    expected = expected_usage(adapter, recording)
    if expected is None or got is None:
        assert got == expected
        return
    assert (got.prompt_tokens, got.completion_tokens) == (expected.prompt_tokens, expected.completion_tokens)
    if len(plain_reading(recording.id).usage) == 1:
        assert got.cached_tokens == expected.cached_tokens


# --- streams, cut


def cut(body: bytes, edges: Iterable[int]) -> list[bytes]:
    return [body[a:b] for a, b in pairwise([0, *sorted(min(e, len(body)) for e in edges), len(body)])]


@with_own_adapter(STREAMS)
def test_a_stream_fed_byte_by_byte_comes_out_the_same(adapter: Adapter, recording: Recording) -> None:
    request = request_of(recording)
    pieces = [recording.body[i : i + 1] for i in range(len(recording.body))]
    assert replay(adapter, request, pieces) == replay(adapter, request, [recording.body])
    assert replay(adapter, request, recording.pieces) == replay(adapter, request, [recording.body])


@with_own_adapter([r for r in STREAMS if len(r.body) <= 3_000])
def test_a_short_stream_cut_in_two_at_any_byte_comes_out_the_same(adapter: Adapter, recording: Recording) -> None:
    request = request_of(recording)
    whole = replay(adapter, request, [recording.body])
    for at in range(1, len(recording.body)):
        assert replay(adapter, request, [recording.body[:at], recording.body[at:]]) == whole, f"cut at {at}"


@with_own_adapter(STREAMS)
def test_a_stream_cut_at_any_byte_comes_out_the_same(adapter: Adapter, recording: Recording) -> None:
    """Pieces longer than a frame, begun at every offset: in some run each byte of the body begins a read."""
    request = request_of(recording)
    body = recording.body
    whole = replay(adapter, request, [body])
    stride = 307
    for offset in range(stride):
        assert replay(adapter, request, cut(body, range(offset, len(body), stride))) == whole, f"offset {offset}"


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_stream_cut_at_random_comes_out_the_same(data: st.DataObject) -> None:
    recording = data.draw(st.sampled_from([r for r in STREAMS if len(r.body) < 20_000]))
    adapter = data.draw(st.sampled_from([ADAPTERS["openai"], own_adapter(recording)]))
    edges = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=30))
    request = request_of(recording)
    assert replay(adapter, request, cut(recording.body, edges)) == replay(adapter, request, [recording.body])


@with_both_adapters([r for r in STREAMS if len(r.body) <= 30_000])
def test_a_stream_in_another_legal_spelling_comes_out_the_same(adapter: Adapter, recording: Recording) -> None:
    request = request_of(recording)
    whole = replay(adapter, request, [recording.body])
    frames = recording.body.split(b"\n\n")
    for spelled in (
        recording.body.replace(b"\n", b"\r\n"),
        recording.body.replace(b"\n", b"\r"),
        recording.body.replace(b"data: ", b"data:"),
        b"\n\n".join(b"id: 7\nevent: message\nretry: 3000\n" + frame for frame in frames),
        b": ping\n\n" + b"\n\n:\n\n".join(frames) + b": ping\n\n",
        recording.body.replace(b"data: {", b"data: {\ndata: "),
    ):
        for pieces in ([spelled], cut(spelled, range(0, len(spelled), 97))):
            got = replay(adapter, request, pieces)
            assert chunks_of(got.out) == chunks_of(whole.out)
            assert (got.outputs, got.usage, got.finished) == (whole.outputs, whole.usage, whole.finished)
            assert (got.error, got.raised) == (whole.error, whole.raised)


# --- whole answers


def answer_of(adapter: Adapter, request: GatewayRequest, recording: Recording, pieces: Iterable[bytes]) -> Json:
    reader = adapter.answer_reader(
        request, answer_head(recording.content_type), streamed=adapter.encode(request, None).stream
    )
    for piece in pieces:
        reader.feed(piece)
    answer = reader.close()
    value: Json = json.loads(answer.body)
    if usage := value.get("usage"):
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == usage["prompt_tokens"]
        assert answer.usage.completion_tokens == usage.get("completion_tokens", 0)
    return value


@with_both_adapters(ANSWERS)
def test_a_whole_answer_keeps_every_field_but_the_model(adapter: Adapter, recording: Recording) -> None:
    expected: Json = {**json.loads(recording.body), "model": CLIENT_MODEL}
    for choice in expected.get("choices", ()):
        if choice.get("message", {}).get("tool_calls") and choice["finish_reason"] == "stop":
            choice["finish_reason"] = "tool_calls"
        if "text" in choice and "content" in (choice.get("logprobs") or {}):  # llama.cpp's, in the form of chat
            tokens = choice["logprobs"]["content"]
            choice["logprobs"] = {
                "tokens": [token["token"] for token in tokens],
                "token_logprobs": [token["logprob"] for token in tokens],
                "top_logprobs": [{top["token"]: top["logprob"] for top in t["top_logprobs"]} for t in tokens],
                "text_offset": [sum(len(t["token"]) for t in tokens[:n]) for n in range(len(tokens))],
            }
    request = request_of(recording)
    assert answer_of(adapter, request, recording, recording.pieces) == expected
    assert answer_of(adapter, request, recording, cut(recording.body, range(0, len(recording.body), 100))) == expected


@with_both_adapters(ANSWERS)
def test_an_answer_with_the_clients_own_model_name_keeps_its_bytes(adapter: Adapter, recording: Recording) -> None:
    whole = json.loads(recording.body)
    choices = whole.get("choices", ())
    as_chat = ["text" in choice and "content" in (choice.get("logprobs") or {}) for choice in choices]
    if any(as_chat) or any(choice.get("message", {}).get("tool_calls") for choice in choices):
        return
    request = request_of(recording, model=whole["model"])
    reader = adapter.answer_reader(
        request, answer_head(recording.content_type), streamed=adapter.encode(request, None).stream
    )
    reader.feed(recording.body)
    assert reader.close().body == recording.body


@with_both_adapters(ANSWERS)
def test_an_answer_that_breaks_off_is_refused(adapter: Adapter, recording: Recording) -> None:
    request = request_of(recording)
    for kept in range(0, len(recording.body) - 1, max(1, len(recording.body) // 50)):
        reader = adapter.answer_reader(
            request, answer_head(recording.content_type), streamed=adapter.encode(request, None).stream
        )
        reader.feed(recording.body[:kept])
        with pytest.raises(AdapterError):
            reader.close()


RECORDED_BOTH_WAYS = [
    ("chat_stream_usage", "chat"),
    ("chat_logprobs_stream", "chat_logprobs"),
    ("chat_stop_stream", "chat_stop"),
    ("chat_max1_stream", "chat_max1"),
    ("chat_json_schema_stream", "chat_json_schema"),
    ("chat_tools_required_stream", "chat_tools_required"),
    ("chat_tools_named_stream", "chat_tools_named"),
    ("chat_tools_shown_stream", "chat_tools_shown"),
    ("completion_stream_usage", "completion"),
    ("completion_batch_stream", "completion_batch"),
]


def llamacpp_recording(name: str) -> Recording:
    return next(r for r in KNOWN if r.id == f"llamacpp/{name}")


@pytest.mark.parametrize(("stream_name", "answer_name"), RECORDED_BOTH_WAYS)
def test_an_answer_put_together_from_llamacpps_stream_is_the_one_it_gives_without(
    stream_name: str, answer_name: str
) -> None:
    streamed, answered = llamacpp_recording(stream_name), llamacpp_recording(answer_name)
    adapter = ADAPTERS["llamacpp"]
    request = request_of(answered)
    upstream = adapter.encode(request, None)
    assert upstream.stream
    for pieces in ([streamed.body], streamed.pieces, [streamed.body[i : i + 1] for i in range(len(streamed.body))]):
        reader = adapter.answer_reader(request, answer_head(streamed.content_type), streamed=upstream.stream)
        for piece in pieces:
            reader.feed(piece)
        outputs = reader.outputs
        answer = reader.close()
        got, expected = json.loads(answer.body), json.loads(answered.body)
        assert outputs == outputs_in(plain_reading(streamed.id).chunks)
        assert got["object"] == expected["object"]
        assert got["model"] == CLIENT_MODEL
        assert comparable(got["choices"]) == comparable(expected["choices"])
        if streamed.request.get("stream_options") and stream_name != "completion_batch_stream":
            assert without_details(got["usage"]) == without_details(expected["usage"])


def test_an_answer_put_together_from_a_stream_does_not_repeat_the_prefill() -> None:
    """As vLLM answers; llama.cpp's own answer without a stream begins with what the client gave it."""
    streamed, answered = llamacpp_recording("chat_prefill_flags_stream"), llamacpp_recording("chat_prefill_flags")
    prefill = answered.request["messages"][-1]["content"]
    adapter, request = ADAPTERS["llamacpp"], request_of(answered)
    reader = adapter.answer_reader(
        request, answer_head(streamed.content_type), streamed=adapter.encode(request, None).stream
    )
    reader.feed(streamed.body)
    content = json.loads(reader.close().body)["choices"][0]["message"]["content"]
    assert prefill + content == json.loads(answered.body)["choices"][0]["message"]["content"]


def comparable(choices: list[Json]) -> list[Json]:
    """Without what differs from call to call (ids), and without what is null or empty."""
    kept: list[Json] = []
    for choice in choices:
        message = {key: value for key, value in choice.get("message", {}).items() if value not in (None, "")}
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [{key: value for key, value in call.items() if key != "id"} for call in calls]
        kept.append({key: value for key, value in choice.items() if value is not None} | {"message": message})
    return kept


def without_details(usage: Json) -> Json:
    return {key: value for key, value in usage.items() if not key.endswith("_details")}


@pytest.mark.parametrize("recording", [pytest.param(r, id=r.id) for r in STREAMS if r.folder.startswith("llamacpp")])
def test_an_answer_put_together_from_a_stream_has_all_its_text_or_is_refused(recording: Recording) -> None:
    adapter, expected = ADAPTERS["llamacpp"], plain_reading(recording.id)
    request = request_of(recording, without=("stream", "stream_options"))
    upstream = adapter.encode(request, None)
    reader = adapter.answer_reader(request, answer_head(recording.content_type), streamed=upstream.stream)
    for piece in recording.pieces:
        reader.feed(piece)
    if not expected.whole:
        with pytest.raises(TruncatedStream):
            reader.close()
        return
    answer: Json = json.loads(reader.close().body)
    texts: dict[tuple[int, str], str] = {}
    for choice in answer["choices"]:
        message: Json = choice.get("message") or {}
        texts[choice["index"], "text"] = choice.get("text") or ""
        texts[choice["index"], "content"] = message.get("content") or ""
        for index, call in enumerate(message.get("tool_calls") or ()):
            texts[choice["index"], f"{index} name"] = call["function"]["name"]
            texts[choice["index"], f"{index} arguments"] = call["function"]["arguments"]
    assert {key: text for key, text in texts.items() if text} == joined_text(expected.chunks)
    usage = expected_usage(adapter, recording)
    if usage is not None:
        assert answer["usage"]["prompt_tokens"] == usage.prompt_tokens
        assert answer["usage"]["completion_tokens"] == usage.completion_tokens


# --- refusals


NO_SUCH_PATH = b'{"detail":"Not Found"}'  # its words alone would tell a client nothing


def engines_message(body: bytes) -> str | None:
    """The message in an error body of any recorded shape; None if it has none."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return body.decode() or None
    error: Any = value.get("error", value.get("detail"))
    if isinstance(error, str):
        return error
    return str(error["message"] if "message" in error else error[0]["msg"])


@with_both_adapters(REFUSALS)
def test_a_refusal_is_read_into_the_engines_own_words(adapter: Adapter, recording: Recording) -> None:
    error = adapter.read_error(recording.status, recording.body)
    assert isinstance(error, EngineFailed)
    assert error.status == recording.status
    message = engines_message(recording.body)
    if message is None:
        assert str(recording.status) in error.message
    elif recording.body.startswith(b'{"detail":['):
        assert message in error.message
    elif recording.body == NO_SUCH_PATH:
        assert error.message.startswith("Not Found: the engine serves no such call")
    else:
        assert error.message == message
    fields: Json = json.loads(recording.body)["error"] if recording.body.startswith(b'{"error":{') else {}
    for key in ("type", "code", "param"):
        assert getattr(error, key) == (None if fields.get(key) is None else str(fields[key]))


def test_all_shapes_of_refusals_are_among_the_recordings() -> None:
    bodies = [r.body for r in REFUSALS]
    for start in (b'{"error":{', b'{"error":"', b'{"detail":"', b'{"detail":[', NO_SUCH_PATH, b"Internal Server Error"):
        assert any(body.startswith(start) for body in bodies), start
    assert b"" in bodies
