"""The scripted engines themselves, asked directly: their bytes, their refusals, their pages."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.dialects.answer import Call, Load, Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import Dialect, DialectEngine, serving
from tests.fakes.dialects.voice import OWN_MODEL
from tests.fakes.raw_client import Reply, connect, request_bytes

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
NATIVE: dict[str, Any] = {"inputs": "hi", "parameters": {}}
MESSAGES = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]

every_dialect = pytest.mark.parametrize("name", DIALECTS)


async def ask(engine: DialectEngine, path: str, body: object = None) -> Reply:
    method = "GET" if body is None else "POST"
    async with connect(engine.port) as connection:
        host = ("host", f"127.0.0.1:{engine.port}")
        await connection.send(request_bytes(method, path, body, [host]))
        return await connection.reply(method=method)


async def say(name: str, path: str, body: Mapping[str, Any], what: Say) -> list[bytes]:
    """The lines of the engine's answer, blank ones left out."""
    async with serving(DIALECTS[name](what)) as engine:
        reply = await ask(engine, path, body)
    assert reply.status == 200, reply.body
    assert reply.whole
    return [line for line in reply.body.split(b"\n") if line]


def chat(**more: object) -> dict[str, Any]:
    return {"model": OWN_MODEL, "messages": MESSAGES, **more}


def completion(**more: object) -> dict[str, Any]:
    return {"model": OWN_MODEL, "prompt": "hi", **more}


class TestBytes:
    """One frame of each kind, as the engines' documents print it."""

    async def test_vllm(self) -> None:
        what = Say(text=("Hel", "lo"), reasoning=("The user",))
        role, thought, first, last, done = await say("vllm", CHAT, chat(stream=True), what)
        assert role.endswith(
            b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
            b'"prompt_token_ids":null,"prompt_text":null}'
        )
        assert b'"choices":[{"index":0,"delta":{"reasoning":"The user"},"logprobs":null,' in thought
        assert first == (
            b'data: {"id":"chatcmpl-9a3a397bd395c301","object":"chat.completion.chunk","created":1787300000,'
            b'"model":"org/engine-model","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,'
            b'"finish_reason":null,"token_ids":null}]}'
        )
        assert last.endswith(
            b'"delta":{"content":"lo"},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],'
            b'"system_fingerprint":"vllm-0.33.0-256941fa"}'
        )
        assert done == b"data: [DONE]"

    async def test_sglang(self) -> None:
        asked = chat(stream=True, stream_options={"include_usage": True})
        role, first, finish, usage, done = await say("sglang", CHAT, asked, Say(text=("Hello",)))
        assert b'"delta":{"reasoning_content":null,"role":"assistant","content":""},"logprobs":null,' in role
        assert first.endswith(
            b'"choices":[{"index":0,"delta":{"reasoning_content":null,"content":"Hello"},"logprobs":null,'
            b'"finish_reason":null,"matched_stop":null}]}'
        )
        assert b'"delta":{"reasoning_content":null},"logprobs":null,"finish_reason":"stop","matched_stop":2' in finish
        assert b'"choices":[],"usage":{"prompt_tokens":12,"total_tokens":13,"completion_tokens":1,' in usage
        assert done == b"data: [DONE]"

    async def test_llamacpp(self) -> None:
        role, first, finish, done = await say("llamacpp", CHAT, chat(stream=True), Say(text=("I",)))
        assert role.startswith(
            b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],'
            b'"created":1787300000,'
        )
        assert b'"index":0,"delta":{"content":"I"}}],"created":1787300000,"id":"chatcmpl-9JrkT4' in first
        assert b'"choices":[{"finish_reason":"stop","index":0,"delta":{}}]' in finish
        assert b'"timings":{"cache_n":4,"prompt_n":8,' in finish
        assert done == b"data: [DONE]"

    async def test_tgi_chat(self) -> None:
        first, last, done = await say("tgi", CHAT, chat(model="tgi", stream=True), Say(text=("Hel",)))
        assert first == (
            b'data: {"object":"chat.completion.chunk","id":"","created":1787300000,"model":"org/engine-model",'
            b'"system_fingerprint":"3.3.7-sha-1234567","choices":[{"index":0,"delta":{"role":"assistant",'
            b'"content":"Hel"},"logprobs":null,"finish_reason":null}],"usage":null}'
        )
        assert b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":"stop"' in last
        assert done == b"data: [DONE]"

    async def test_tgi_calls_end_without_a_finish(self) -> None:
        what = Say(text=(), calls=(Call("get_weather", ("{", '"city": "Oslo"}')),))
        *pieces, done = await say("tgi", CHAT, chat(stream=True, tools=TOOLS), what)
        assert len(pieces) == 3
        assert all(b'"id":"0","type":"function"' in piece and b'"finish_reason":null' in piece for piece in pieces)
        assert done == b"data: [DONE]"

    async def test_tgi_generate_stream(self) -> None:
        asked = {"inputs": "hi", "parameters": {"details": True}}
        first, last = await say("tgi", "/generate_stream", asked, Say(text=(" Hello",), tokens=2))
        assert first == (
            b'data: {"index":1,"token":{"id":15001,"text":" Hello","logprob":-0.5,"special":false},'
            b'"generated_text":null,"details":null}'
        )
        assert last == (
            b'data: {"index":2,"token":{"id":2,"text":"</s>","logprob":-0.5,"special":true},"generated_text":" Hello",'
            b'"details":{"finish_reason":"eos_token","generated_tokens":2,"seed":null,"input_length":12}}'
        )

    async def test_ollama_natively(self) -> None:
        what = Say(text=("Hello",), reasoning=("Let me",), calls=(Call("get_weather", ('{"city":', '"Oslo"}')),))
        thought, text, call, last = await say("ollama", "/api/chat", chat(tools=TOOLS), what)
        top = (
            b'{"model":"org/engine-model","created_at":"2026-08-21T10:00:00.123456789Z","message":{"role":"assistant",'
        )
        assert thought == top + b'"content":"","thinking":"Let me"},"done":false}'
        assert text == top + b'"content":"Hello"},"done":false}'
        function = b'{"index":0,"name":"get_weather","arguments":{"city":"Oslo"}}'
        assert (
            call
            == top + b'"content":"","tool_calls":[{"id":"call_00000000","function":' + function + b'}]},"done":false}'
        )
        assert last.startswith(top + b'"content":""},"done":true,"done_reason":"stop","total_duration":312000000,')
        assert b'"prompt_eval_count":12,"prompt_eval_duration":41000000,"eval_count":5,' in last

    async def test_ollama_loses_a_failure_on_v1(self) -> None:
        *_, last = await say("ollama", CHAT, chat(stream=True), Say(fails_after=1))
        assert b'"model":""' in last
        assert b"own words" not in last

    async def test_lightllm_chat(self) -> None:
        role, _, last, usage, done = await say("lightllm", CHAT, chat(stream=True), Say(text=("Hel", "lo")))
        assert role.endswith(
            b'"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, '
            b'"finish_reason": null}], "prompt_token_ids": null}'
        )
        assert last.endswith(
            b'"delta": {"content": "lo"}, "finish_reason": "stop", "logprobs": null, "token_ids": null, '
            b'"stop_reason": null}]}'
        )
        assert b'"usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14, ' in usage
        assert done == b"data: [DONE]"

    async def test_lightllm_natively(self) -> None:
        first, last = await say("lightllm", "/generate_stream", NATIVE, Say(text=("a/b",)))
        assert first.startswith(b'data:{"token":{"id":15001,"text":"a\\/b","logprob":-0.5,"special":false,')
        assert b'"finished":true,"finish_reason":"stop"' in last

    async def test_lmdeploy(self) -> None:
        asked = chat(stream=True, stream_options={"include_usage": True})
        first, usage, done = await say("lmdeploy", CHAT, asked, Say(text=("Hel",)))
        assert first.endswith(b'"usage": null}')
        assert b'"choices": [], "usage": {"prompt_tokens": 12,' in usage
        assert done == b"data: [DONE]"

    async def test_trtllm_breaks_off(self) -> None:
        async with serving(DIALECTS["trtllm"](Say(fails_after=1))) as engine:
            reply = await ask(engine, CHAT, chat(stream=True))
        assert not reply.whole
        assert not reply.done
        assert reply.content() == "Hel"


OTHER_PATHS: list[tuple[str, str, dict[str, Any], int]] = [
    ("tgi", "/generate", {"inputs": "hi", "parameters": {"temperature": 0}}, 422),
    ("tgi", "/generate", {"inputs": ["hi"]}, 422),
    ("ollama", "/api/chat", {"model": OWN_MODEL, "messages": [{"role": "user", "content": []}]}, 400),
    ("ollama", "/api/chat", {"model": OWN_MODEL, "messages": [], "options": {"stop": "a"}}, 400),
    ("ollama", "/api/chat", {"model": "nope", "messages": []}, 404),
    ("ollama", "/v1/completions", {"model": OWN_MODEL, "prompt": ["hi"]}, 400),
    ("lightllm", "/generate", {"inputs": "hi"}, 417),
    ("lightllm", TEXT, {"model": OWN_MODEL, "prompt": ["a", "b"], "stream": True}, 400),
]


class TestRefusals:
    """What a codec must have changed before it sends."""

    @pytest.mark.parametrize(
        ("name", "change", "status"),
        [
            ("vllm", {"stream_options": {"include_usage": True}}, 400),
            ("vllm", {"stop": ["a", "b", "c", "d", "e"]}, 400),
            ("vllm", {"temperature": 0, "n": 2}, 400),
            ("vllm", {"temperature": "warm"}, 400),
            ("vllm", {"model": "nope"}, 404),
            ("sglang", {"n": None}, 400),
            ("sglang", {"logprobs": None}, 400),
            ("sglang", {"presence_penalty": None}, 400),
            ("sglang", {"repetition_penalty": 2.5}, 400),
            ("llamacpp", {"n": 5}, 400),
            ("llamacpp", {"top_logprobs": 2}, 400),
            ("llamacpp", {"logprobs": True, "tools": TOOLS, "stream": True}, 400),
            ("tgi", {"stop": "a"}, 422),
            ("tgi", {"top_p": 1}, 422),
            ("tgi", {"presence_penalty": -2}, 422),
            ("tgi", {"stream_options": None}, 422),
            ("tgi", {"stream": None}, 422),
            ("tgi", {"logit_bias": {"1": 2}}, 422),
            ("tgi", {"max_tokens": 1, "max_completion_tokens": 1}, 422),
            ("tgi", {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, 422),
            ("tgi", {"response_format": {"type": "json_object"}}, 422),
            ("tgi", {"messages": [{"role": "user", "content": None}]}, 422),
            ("ollama", {"model": "nope"}, 404),
            ("ollama", {"reasoning_effort": "extreme"}, 400),
            ("ollama", {"messages": []}, 400),
            ("lightllm", {"temperature": None}, 500),
            ("lightllm", {"stop": list("abcdefghijk")}, 500),
            ("lightllm", {"logit_bias": {}}, 400),
            ("lightllm", {"presence_penalty": -1}, 400),
            ("lightllm", {"reasoning_effort": "none"}, 422),
            ("lightllm", {"n": "two"}, 422),
            ("lmdeploy", {"temperature": "warm"}, 400),
            ("trtllm", {"n": None}, 400),
        ],
    )
    async def test_of_chat(self, name: str, change: dict[str, Any], status: int) -> None:
        async with serving(DIALECTS[name]()) as engine:
            reply = await ask(engine, CHAT, chat(**change))
            assert reply.status == status, reply.body
            assert engine.asks == []
            assert engine.bodies == [json.loads(json.dumps(chat(**change)))]

    @pytest.mark.parametrize(("name", "path", "body", "status"), OTHER_PATHS)
    async def test_of_other_paths(self, name: str, path: str, body: dict[str, Any], status: int) -> None:
        async with serving(DIALECTS[name]()) as engine:
            reply = await ask(engine, path, body)
        assert reply.status == status, reply.body

    async def test_tgi_validates_a_stream_after_its_head(self) -> None:
        async with serving(DIALECTS["tgi"]()) as engine:
            reply = await ask(engine, CHAT, chat(stream=True, top_p=1))
        assert reply.status == 200
        assert reply.stream_error == {
            "message": "Input validation error: `top_p` must be > 0.0 and < 1.0",
            "http_status_code": 422,
        }
        assert reply.done

    async def test_ollama_v1_knows_no_other_limit_than_max_tokens(self) -> None:
        async with serving(DIALECTS["ollama"]()) as engine:
            await ask(engine, CHAT, chat(max_completion_tokens=1))
        assert engine.asks[-1].max_tokens is None

    async def test_ollama_knows_its_own_name_only(self) -> None:
        async with serving(DIALECTS["ollama"]()) as engine, connect(engine.port) as connection:
            await connection.send(request_bytes("GET", "/api/version", headers=[("host", "weir.test:80")]))
            assert (await connection.reply(method="GET")).status == 403

    async def test_tgi_turns_a_presence_penalty_into_another(self) -> None:
        async with serving(DIALECTS["tgi"]()) as engine:
            await ask(engine, CHAT, chat(presence_penalty=0))
        assert dict(engine.asks[-1].sampling)["repetition_penalty"] == 2.0


class TestConnections:
    @every_dialect
    async def test_one_serves_a_whole_answer_after_a_whole_answer(self, name: str) -> None:
        async with serving(DIALECTS[name]()) as engine, connect(engine.port) as connection:
            host = ("host", "127.0.0.1:1")
            await connection.send(request_bytes("POST", CHAT, chat(), [host]))
            await connection.read_until(b'"usage"')
            await connection.send(request_bytes("POST", CHAT, chat(), [host]))
            await connection.read_until(lambda got: got.count(b'"usage"') == 2)
            assert engine.connections == 1
            assert [request.turn for request in engine.requests] == [1, 2]

    @every_dialect
    async def test_after_a_stream_llamacpp_alone_closes_it(self, name: str) -> None:
        async with serving(DIALECTS[name]()) as engine, connect(engine.port) as connection:
            await connection.send(request_bytes("POST", CHAT, chat(stream=True), [("host", "127.0.0.1:1")]))
            assert (await connection.reply()).whole
            await connection.send(request_bytes("GET", "/v1/models", headers=[("host", "127.0.0.1:1")]))
            await connection.read_until(b"owned_by")
            assert connection.ended == (name == "llamacpp")


class TestPages:
    @every_dialect
    async def test_each_answers_200(self, name: str) -> None:
        dialect = DIALECTS[name]()
        async with serving(dialect) as engine:
            for path in dialect.pages():
                reply = await ask(engine, path)
                assert reply.status == 200
                assert reply.whole
            lost = await ask(engine, "/nowhere")
        assert lost.status == 404
        assert len(engine.probes) == len(dialect.pages()) + 1

    @every_dialect
    async def test_the_model_is_listed(self, name: str) -> None:
        async with serving(DIALECTS[name]()) as engine:
            reply = await ask(engine, "/v1/models")
        assert reply.json()["data"][0]["id"].removesuffix(":latest") == OWN_MODEL

    @pytest.mark.parametrize(
        ("name", "running", "waiting"),
        [
            ("vllm", "vllm:num_requests_running", "vllm:num_requests_waiting"),
            ("sglang", "sglang:num_running_reqs", "sglang:num_queue_reqs"),
            ("llamacpp", "llamacpp:requests_processing", "llamacpp:requests_deferred"),
            ("tgi", "tgi_batch_current_size", "tgi_queue_size"),
            ("lightllm", "lightllm_batch_current_size", "lightllm_queue_size"),
            ("lmdeploy", "lmdeploy:num_requests_running", "lmdeploy:num_requests_waiting"),
        ],
    )
    async def test_the_metrics_tell_the_load(self, name: str, running: str, waiting: str) -> None:
        async with serving(DIALECTS[name](load=Load(running=7, waiting=5))) as engine:
            reply = await ask(engine, "/metrics")
        families = text_string_to_metric_families(reply.body.decode())
        values = {sample.name: sample.value for family in families for sample in family.samples}
        assert (values[running], values[waiting]) == (7, 5)


def test_the_dialects_share_no_code_with_weir() -> None:
    folder = Path(inspect.getfile(Dialect)).parent
    imports = [line for path in folder.glob("*.py") for line in path.read_text().splitlines() if "import" in line]
    assert [line for line in imports if re.match(r"\s*(from|import) (adapters|gateway|policies)\b", line)] == []


class TestEverySayIsSaid:
    @every_dialect
    @pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
    @pytest.mark.parametrize("say_what", [Say(), Say(finish="length"), Say(text=())], ids=["stop", "length", "nothing"])
    async def test_on_every_path(self, name: str, stream: bool, say_what: Say) -> None:
        async with serving(DIALECTS[name](say_what)) as engine:
            for path in DIALECTS[name]().endpoints():
                native = path.startswith("/generate")
                reply = await ask(engine, path, NATIVE if native else {**chat(), **completion(), "stream": stream})
                assert reply.status == 200, (path, reply.body)
                assert reply.whole
                for piece in say_what.text:
                    assert json.dumps(piece)[1:-1].encode() in reply.body.replace(b"\\/", b"/") or (
                        piece.encode() in reply.body
                    ), path
