"""RW-03 to RW-05, chunk-shape: usage, several choices, logprobs and reasoning reach the client as they should."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.engines import ENGINES, WHOLE_ANSWER_ENGINES, spread
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, t0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    chunk,
    completion,
    delta,
    done,
    end,
    event,
    fin,
    head,
    json_answer,
    role,
    text,
    text_stream,
    tok,
    usage,
    usage_object,
)

TTFT_COUNT = "weir_time_to_first_token_seconds_count"

USAGE_FORMS: dict[str, list[Step]] = {
    "its own chunk": [fin("stop"), usage(5, 2)],
    "its own chunk without choices": [fin("stop"), event(chunk(None, usage=usage_object(5, 2)))],
    "its own chunk with null choices": [
        fin("stop"),
        event(chunk(None) | {"choices": None, "usage": usage_object(5, 2)}),
    ],
    "with details": [
        fin("stop"),
        event(chunk([], usage=usage_object(5, 2) | {"prompt_tokens_details": {"cached_tokens": 1}, "cost": None})),
    ],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing said": {},
    "false": {"stream_options": {"include_usage": False}},
    "empty options": {"stream_options": {}},
    "null options": {"stream_options": None},
}


def usage_script(form: str) -> Script:
    return [head(200, "sse"), role(), tok("a"), *USAGE_FORMS[form], done(), end()]


@pytest.mark.parametrize(
    ("form", "options"),
    [*((form, "nothing said") for form in USAGE_FORMS), *(("its own chunk", options) for options in OPTIONS)],
)
async def test_rw_03_a_client_that_did_not_ask_for_usage_sees_no_chunk_without_choices(form: str, options: str) -> None:
    async with ScriptedUpstream(usage_script(form)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(**OPTIONS[options]))
        assert reply.done
        assert all(piece["choices"] for piece in reply.chunks)
        assert reply.content() == "a"
        assert reply.finishes() == ["stop"]
        metrics = await gw.settled(lambda m: m.total("weir_requests_total") == 1)
        assert metrics.total("weir_tokens_total", type="input", source="usage") == 5
        assert metrics.total("weir_tokens_total", type="output", source="usage") == 2


@pytest.mark.parametrize("form", USAGE_FORMS)
async def test_rw_03_a_client_that_asked_gets_one_usage_chunk_after_the_finish(form: str) -> None:
    async with ScriptedUpstream(usage_script(form)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream_options={"include_usage": True}))
        with_usage = [i for i, piece in enumerate(reply.chunks) if piece.get("usage")]
        assert with_usage == [len(reply.chunks) - 1]
        last = reply.chunks[-1]
        assert last["choices"] == []
        assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (5, 2)
        assert reply.chunks[-2]["choices"][0]["finish_reason"] == "stop"
        assert reply.payloads[-1] == "[DONE]"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("asked", [True, False])
async def test_rw_03_every_engine_is_asked_for_usage(engine: str, asked: bool) -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(stream_options={"include_usage": True}) if asked else r0())
        assert u.last.json()["stream_options"]["include_usage"] is True
        assert [bool(piece["choices"]) for piece in reply.chunks].count(False) == (1 if asked else 0)


async def test_rw_03_other_stream_options_are_kept_when_usage_is_asked_for() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0(stream_options={"continuous_usage_stats": True, "include_usage": False}))
        assert u.last.json()["stream_options"] == {"continuous_usage_stats": True, "include_usage": True}


async def test_rw_03_each_request_adds_its_tokens_to_the_counters() -> None:
    async with ScriptedUpstream(usage_script("its own chunk")) as u, running_gateway(config(u.url)) as gw:
        for body in (r0(), r0(stream_options={"include_usage": True}), r0(stream_options={"include_usage": False})):
            await gw.post(body)
        metrics = await gw.outcome("ok", 3)
        assert metrics.total("weir_tokens_total", type="input") == 15
        assert metrics.total("weir_tokens_total", type="output") == 6


@pytest.mark.parametrize("asked", [True, False])
async def test_rw_03_running_usage_on_every_chunk_is_counted_once(asked: bool) -> None:
    def counted(fields: dict[str, Any], finish: str | None, output: int) -> Step:
        choice = {"index": 0, "delta": fields, "finish_reason": finish}
        return event(chunk([choice], usage=usage_object(5, output)))

    script = [
        head(200, "sse"),
        counted({"role": "assistant", "content": ""}, None, 0),
        counted({"content": "a"}, None, 1),
        counted({"content": "b"}, "stop", 2),
        usage(5, 2),
        done(),
        end(),
    ]
    options: dict[str, Any] = {"include_usage": asked, "continuous_usage_stats": True}
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream_options=options))
        assert reply.content() == "ab"
        assert sum(not piece["choices"] for piece in reply.chunks) == (1 if asked else 0)
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_tokens_total", type="output") == 2


@pytest.mark.parametrize("asked", [True, False])
async def test_rw_03_usage_on_the_finish_chunk_loses_neither_the_finish_nor_the_count(asked: bool) -> None:
    last = event(
        chunk([{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}], usage=usage_object(5, 2)),
    )
    script = [head(200, "sse"), role(), tok("a"), last, done(), end()]
    options = {"stream_options": {"include_usage": True}} if asked else {}
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(**options))
        assert reply.content() == "ab"
        assert reply.finishes() == ["stop"]
        assert reply.done
        if asked:
            assert any(piece.get("usage", {}).get("completion_tokens") == 2 for piece in reply.chunks)
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_tokens_total", type="output") == 2


async def test_rw_03_the_word_usage_in_the_text_is_no_usage() -> None:
    content = '{"usage":{"prompt_tokens":9}}, "usage":'
    script = [head(200, "sse"), role(), tok(content), fin("stop"), usage(5, 2), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0())).content() == content
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_tokens_total", type="input") == 5


@pytest.mark.parametrize("asked", [True, False])
async def test_rw_03_completions_streams_follow_the_same_rule(asked: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if asked else {}
    async with ScriptedUpstream(text_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(t0(**options), "/v1/completions")
        assert reply.content() == "ab"
        assert sum(not piece["choices"] for piece in reply.chunks) == (1 if asked else 0)
        assert reply.done


async def test_rw_03_the_official_clients_naive_loop_works() -> None:
    async with ScriptedUpstream(usage_script("its own chunk")) as u, running_gateway(config(u.url)) as gw:
        stream = await gw.sdk().chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert "".join([piece.choices[0].delta.content or "" async for piece in stream]) == "a"


def logprob(token: str) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": -0.25, "bytes": list(token.encode()), "top_logprobs": []}]}


def spoken(token: str, index: int) -> Step:
    return tok(token, index, logprobs=logprob(token))


INTERLEAVED: list[Step] = [
    role(0),
    role(1),
    spoken("A", 0),
    spoken("x", 1),
    spoken("y", 1),
    fin("length", 1),
    spoken("B", 0),
    fin("stop", 0),
]


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_04_interleaved_choices_keep_their_index_text_finish_and_logprobs(engine: str) -> None:
    script = [head(200, "sse"), *INTERLEAVED, usage(5, 4), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(n=2, logprobs=True))
        assert (reply.content(0), reply.finishes(0)) == ("AB", ["stop"])
        assert (reply.content(1), reply.finishes(1)) == ("xy", ["length"])
        for index, tokens in ((0, "AB"), (1, "xy")):
            said = [choice["logprobs"] for choice in reply.choices(index) if choice.get("logprobs")]
            assert said == [logprob(token) for token in tokens]
        assert reply.done
        metrics = await gw.outcome("ok")
        assert metrics.total(TTFT_COUNT) == 1


async def test_rw_04_several_choices_in_one_chunk_are_kept() -> None:
    def both(first: dict[str, Any], second: dict[str, Any], finish: str | None = None) -> Step:
        return event(
            chunk(
                [
                    {"index": 0, "delta": first, "finish_reason": finish},
                    {"index": 1, "delta": second, "finish_reason": finish},
                ]
            )
        )

    script = [
        head(200, "sse"),
        both({"role": "assistant", "content": ""}, {"role": "assistant", "content": ""}),
        both({"content": ""}, {"content": "x"}),
        both({"content": "A"}, {"content": "y"}),
        both({}, {}, "stop"),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(n=2))
        assert (reply.content(0), reply.content(1)) == ("A", "xy")
        assert reply.done


async def test_rw_04_completions_with_several_choices_are_kept() -> None:
    script = [
        head(200, "sse"),
        text("A", 0),
        text("x", 1),
        text("y", 1, "length"),
        text("B", 0, "stop"),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(t0(n=2), "/v1/completions")
        assert (reply.content(0), reply.finishes(0)) == ("AB", ["stop"])
        assert (reply.content(1), reply.finishes(1)) == ("xy", ["length"])
        assert reply.done


async def test_rw_04_a_stream_in_which_one_choice_never_finished_is_broken() -> None:
    script = [head(200, "sse"), *INTERLEAVED[:-1], done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(n=2))
        assert reply.stream_error is not None
        assert not reply.done


async def test_rw_04_a_whole_answer_with_two_choices_and_logprobs_is_untouched() -> None:
    answer = completion("A")
    answer["choices"][0]["logprobs"] = logprob("A")
    answer["choices"].append(
        {
            "index": 1,
            "message": {"role": "assistant", "content": "x"},
            "logprobs": logprob("x"),
            "finish_reason": "length",
        }
    )
    async with ScriptedUpstream(json_answer(answer)) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False, n=2, logprobs=True))
        assert reply.json() == answer | {"model": "m"}


REASONING_FIELDS = ("reasoning", "reasoning_content")


def reasoning_of(fields: dict[str, Any]) -> str:
    """The reasoning text under either name; both at once must agree."""
    found = {fields[name] for name in REASONING_FIELDS if fields.get(name)}
    assert len(found) <= 1
    return next(iter(found), "")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("field", REASONING_FIELDS)
async def test_rw_05_streamed_reasoning_reaches_the_client_apart_from_the_content(engine: str, field: str) -> None:
    script = [
        head(200, "sse"),
        role(),
        *(delta({field: "r"}) for _ in range(3)),
        tok("a"),
        fin("stop"),
        usage(5, 4),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0())
        assert "".join(reasoning_of(choice["delta"]) for choice in reply.choices()) == "rrr"
        assert reply.content() == "a"
        assert reply.done


@pytest.mark.parametrize("field", REASONING_FIELDS)
async def test_rw_05_an_answer_of_reasoning_alone_is_an_answer(field: str) -> None:
    script = [head(200, "sse"), role(), delta({field: "r", "content": None}), fin("length"), done(), end()]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert [reasoning_of(choice["delta"]) for choice in reply.choices() if reasoning_of(choice["delta"])] == ["r"]
        assert reply.finishes() == ["length"]
        assert reply.done
        metrics = await gw.outcome("ok")
        assert metrics.total(TTFT_COUNT) == 1


async def test_rw_05_null_reasoning_beside_content_is_no_reasoning() -> None:
    """SGLang sends ``reasoning_content: null`` in every delta."""
    script = [
        head(200, "sse"),
        delta({"role": "assistant", "content": "", "reasoning_content": None}),
        delta({"reasoning_content": "r"}),
        delta({"reasoning_content": None, "content": "a"}),
        delta({"reasoning_content": None}, finish="stop"),
        done(),
        end(),
    ]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine="sglang")) as gw:
        reply = await gw.post(r0())
        assert "".join(reasoning_of(choice["delta"]) for choice in reply.choices()) == "r"
        assert reply.content() == "a"


@pytest.mark.parametrize("engine", WHOLE_ANSWER_ENGINES)
@pytest.mark.parametrize("field", REASONING_FIELDS)
async def test_rw_05_a_whole_answer_keeps_its_reasoning_under_the_same_names(engine: str, field: str) -> None:
    answer = json_answer(completion("a", message={field: "rrr"}))
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(stream=False))
        message = reply.json()["choices"][0]["message"]
        assert reasoning_of(message) == "rrr"
        assert message["content"] == "a"


@pytest.mark.parametrize("field", REASONING_FIELDS)
async def test_rw_05_an_answer_put_together_from_a_stream_keeps_its_reasoning(field: str) -> None:
    script = [
        head(200, "sse"),
        role(),
        *(delta({field: "r"}) for _ in range(3)),
        tok("a"),
        fin("stop"),
        usage(5, 4),
        done(),
        end(),
    ]
    answer = json_answer(completion("a", message={field: "rrr"}))
    async with (
        ScriptedUpstream(lambda r: script if r.asked_for_stream else answer) as u,
        running_gateway(config(u.url, engine="llamacpp")) as gw,
    ):
        message = (await gw.post(r0(stream=False))).json()["choices"][0]["message"]
        assert reasoning_of(message) == "rrr"
        assert message["content"] == "a"


@pytest.mark.parametrize(("field", "engine"), spread([*REASONING_FIELDS, *REASONING_FIELDS]))
async def test_rw_05_reasoning_in_the_history_reaches_the_engine(engine: str, field: str) -> None:
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a", field: "rrr"},
        {"role": "user", "content": "go on"},
    ]
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url, engine=engine)) as gw:
        await gw.post(r0(messages=history))
        assert u.last.json()["messages"] == history
