"""The bytes of each dialect, for streams and whole answers; ids and times are replaced by ``steady``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.simulator.dialect_calls import SKY, TOOLS, settings, steady
from tests.gateway.simulator.served import serve

CHAT = "/v1/chat/completions"
TWO = {"model": "m", "messages": SKY, "max_tokens": 2}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
EMPTY_TOOL = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
CALL = {"model": "m", "messages": SKY, "tools": EMPTY_TOOL, "tool_choice": "required"}
STOP = {"model": "m", "messages": SKY, "stop": [" simulat"]}


async def answer(dialect: str, path: str, body: dict[str, Any]) -> str:
    async with serve(settings(dialect)) as engine:
        response = await engine.http.post(path, json=body)
        assert response.status_code == 200, response.text
        return steady(response.text)


def sse(head: str, tails: list[str], done: str = "data: [DONE]\n\n") -> str:
    """Puts the frames of a stream together, each ``head`` and a tail."""
    return "".join(f"data: {head}{tail}\n\n" for tail in tails) + done


OPENAI_HEAD = (
    '{"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"m","service_tier":"default",'
    '"system_fingerprint":"fp_simulated","choices":['
)
TGI_HEAD = (
    '{"object":"chat.completion.chunk","id":"","created":0,"model":"m",'
    '"system_fingerprint":"3.3.7+simulated-native","choices":['
)
OLLAMA_HEAD = (
    '{"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"m",'
    '"system_fingerprint":"fp_ollama","choices":['
)
SGLANG_HEAD = '{"id":"ID","object":"chat.completion.chunk","created":0,"model":"m","choices":['
LIGHTLLM_HEAD = '{"id": "chatcmpl-ID", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": ['
LLAMACPP_TAIL = (
    '"created":0,"id":"chatcmpl-ID","model":"m","system_fingerprint":"b11434-simulated",'
    '"object":"chat.completion.chunk"'
)


async def test_an_openai_stream() -> None:
    end = '"finish_reason":null}],"usage":null}'
    assert await answer("openai", CHAT, TWO | STREAM) == sse(
        OPENAI_HEAD,
        [
            '{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,' + end,
            '{"index":0,"delta":{"content":"This"},"logprobs":null,' + end,
            '{"index":0,"delta":{"content":" simulat"},"logprobs":null,' + end,
            '{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}',
            '],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":'
            '{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}}',
        ],
    )


async def test_a_tgi_stream_that_is_cut_and_one_that_ends_by_itself() -> None:
    chunk = '{"index":0,"delta":{"role":"assistant","content":"%s"},"logprobs":null,"finish_reason":%s}],"usage":null}'
    assert await answer("tgi", CHAT, TWO | STREAM) == sse(
        TGI_HEAD,
        [
            chunk % ("This", "null"),
            chunk % (" simulat", '"length"'),
            '],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}',
        ],
    )
    whole = await answer("tgi", CHAT, {"model": "m", "messages": SKY, "stream": True})
    assert whole.endswith(sse(TGI_HEAD, [chunk % ("", '"stop"')]))
    stopped = await answer("tgi", CHAT, STOP | {"stream": True})
    assert stopped == sse(TGI_HEAD, [chunk % ("This", "null"), chunk % ("", '"stop_sequence"')])


async def test_a_tgi_tool_call_ends_without_a_finish_reason() -> None:
    call = (
        '{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"0","type":"function","function":'
        '{"name":%s,"arguments":"%s"}}]},"logprobs":null,"finish_reason":null}],"usage":null}'
    )
    assert await answer("tgi", CHAT, CALL | {"stream": True}) == sse(
        TGI_HEAD, [call % ('"now"', "{"), call % ("null", "}")]
    )


async def test_a_tgi_completion_says_its_reasons_raw() -> None:
    body = {"prompt": "The sky", "max_tokens": 2, "stream": True}
    tail = '],"model":"m","system_fingerprint":"3.3.7+simulated-native"'
    assert await answer("tgi", "/v1/completions", body) == sse(
        '{"object":"text_completion","id":"","created":0,"choices":[',
        [
            '{"index":0,"text":" This","logprobs":null,"finish_reason":""}' + tail + "}",
            '{"index":0,"text":" simulat","logprobs":null,"finish_reason":"length"}'
            + tail
            + ',"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}',
        ],
    )


async def test_tgis_own_stream_has_no_end_mark_and_shows_the_end_token() -> None:
    body = {"inputs": "The sky", "parameters": {"details": True, "max_new_tokens": 2}}
    first = '{"index":1,"token":{"id":37628,"text":" This","logprob":-0.629,"special":false},'
    second = '{"index":2,"token":{"id":37598,"text":" simulat","logprob":-0.199,"special":false},'
    details = '"details":{"finish_reason":"length","generated_tokens":2,"seed":null,"input_length":2}}'
    assert await answer("tgi", "/generate_stream", body) == sse(
        "",
        [first + '"generated_text":null,"details":null}', second + '"generated_text":" This simulat",' + details],
        "",
    )
    unlimited = await answer("tgi", "/generate_stream", {"inputs": "The sky"})
    *_, last, rest = unlimited.split("\n\n")
    assert rest == ""
    assert '"token":{"id":2,"text":"</s>","logprob":-0.001,"special":true}' in last
    assert last.endswith(',"details":null}')


async def test_tgis_own_whole_answers() -> None:
    body: dict[str, Any] = {"inputs": "The sky", "parameters": {"max_new_tokens": 2}}
    assert await answer("tgi", "/generate", body) == '{"generated_text":" This simulat"}'
    assert await answer("tgi", "/", body) == '[{"generated_text":" This simulat"}]'
    assert (await answer("tgi", "/", body | {"stream": True})).startswith('data: {"index":1,')
    body["parameters"] |= {"return_full_text": True}
    assert await answer("tgi", "/generate", body) == '{"generated_text":"The sky This simulat"}'


async def test_tgi_says_its_timings_in_headers() -> None:
    async with serve(settings("tgi")) as engine:
        headers = (
            await engine.http.post("/generate", json={"inputs": "x", "parameters": {"max_new_tokens": 3}})
        ).headers
        assert (headers["x-prompt-tokens"], headers["x-generated-tokens"], headers["x-queue-time"]) == ("1", "3", "0")
        assert float(headers["x-compute-time"]) >= 0


async def test_an_ollama_stream_under_v1() -> None:
    chunk = '{"index":0,"delta":%s,"finish_reason":%s}]}'
    assert await answer("ollama", CHAT, TWO | STREAM) == sse(
        OLLAMA_HEAD,
        [
            chunk % ('{"role":"assistant","content":"This"}', "null"),
            chunk % ('{"content":" simulat"}', "null"),
            chunk % ("{}", '"length"'),
            '],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}',
        ],
    )
    call = '{"id":"call_ID","index":0,"type":"function","function":{"name":"now","arguments":"{}"}}'
    assert await answer("ollama", CHAT, CALL | {"stream": True}) == sse(
        OLLAMA_HEAD,
        [
            chunk % (f'{{"role":"assistant","content":"","tool_calls":[{call}]}}', "null"),
            chunk % ("{}", '"tool_calls"'),
        ],
    )


async def test_an_ollama_completion_has_empty_usage_on_every_chunk_when_asked_for_usage() -> None:
    nothing = '"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}'
    tail = f'],"model":"m","system_fingerprint":"fp_ollama",{nothing}}}'
    body = {"model": "m", "prompt": "The sky", "max_tokens": 1} | STREAM
    assert await answer("ollama", "/v1/completions", body) == sse(
        '{"id":"cmpl-ID","object":"text_completion","created":0,"choices":[',
        [
            '{"text":" This","index":0,"finish_reason":null}' + tail,
            '{"text":"","index":0,"finish_reason":"length"}' + tail,
            tail.replace(nothing, '"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}'),
        ],
    )


@pytest.mark.parametrize(
    ("path", "more", "first", "second", "last"),
    [
        (
            "/api/chat",
            {"messages": SKY},
            '"message":{"role":"assistant","content":"This"}',
            '"message":{"role":"assistant","content":" simulat"}',
            '"message":{"role":"assistant","content":""},"done":true,"done_reason":"length"',
        ),
        (
            "/api/generate",
            {"prompt": "Why is the sky blue?"},
            '"response":"This"',
            '"response":" simulat"',
            '"response":"","done":true,"done_reason":"length","context":[1,2,3]',
        ),
    ],
)
async def test_ollamas_own_streams_are_lines(
    path: str, more: dict[str, Any], first: str, second: str, last: str
) -> None:
    text = await answer("ollama", path, {"model": "m:latest", "options": {"num_predict": 2}} | more)
    *lines, rest = text.split("\n")
    assert rest == ""
    head = '{"model":"m:latest","created_at":"NOW",'
    assert lines[:2] == [f'{head}{first},"done":false}}', f'{head}{second},"done":false}}']
    assert lines[2].startswith(f"{head}{last},")
    assert '"prompt_eval_count":10' in lines[2]
    assert '"eval_count":2' in lines[2]
    assert len(lines) == 3


async def test_ollamas_own_tool_call_is_one_line_with_an_object() -> None:
    text = await answer("ollama", "/api/chat", {"model": "m", "messages": SKY, "tools": TOOLS})
    assert '"tool_calls"' not in text  # the question is not about the weather
    weather = [{"role": "user", "content": "What is the weather in Paris?"}]
    first, last, _ = (await answer("ollama", "/api/chat", {"model": "m", "messages": weather, "tools": TOOLS})).split(
        "\n"
    )
    assert (
        '"tool_calls":[{"id":"call_ID","function":{"index":0,"name":"get_weather","arguments":{"city":"Paris"}}}]'
        in first
    )
    assert '"done":true,"done_reason":"stop"' in last


async def test_ollama_thinks_in_its_own_field_and_follows_a_format() -> None:
    body = {"model": "m", "messages": SKY, "stream": False}
    thinking = await answer("ollama", "/api/chat", body | {"think": "low"})
    assert '"thinking":"The user asks about blue."' in thinking
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 30}}, "required": ["n"]}
    formed = await answer("ollama", "/api/chat", body | {"format": schema})
    assert '"content":"{\\"n\\": 30}"' in formed


async def test_an_empty_ollama_call_only_loads_the_model() -> None:
    for path, said in (
        ("/api/chat", '"message":{"role":"assistant","content":""}'),
        ("/api/generate", '"response":""'),
    ):
        text = await answer("ollama", path, {"model": "m"})
        assert text == f'{{"model":"m","created_at":"NOW",{said},"done":true,"done_reason":"load"}}'


async def test_a_lightllm_stream_has_spaces_and_always_usage() -> None:
    usage = (
        '"usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, '
        '"prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}}}'
    )
    assert await answer("lightllm", CHAT, TWO | {"stream": True}) == sse(
        LIGHTLLM_HEAD,
        [
            '{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}], '
            '"prompt_token_ids": null}',
            '{"index": 0, "delta": {"content": "This"}, "logprobs": null, "token_ids": null, "finish_reason": null}]}',
            '{"index": 0, "delta": {"content": " simulat"}, "finish_reason": "length", "logprobs": null, '
            '"token_ids": null, "stop_reason": null}]}',
            "], " + usage,
        ],
    )
    *_, finish, _, _, _ = (await answer("lightllm", CHAT, CALL | {"stream": True})).split("\n\n")
    assert finish.endswith(
        '{"index": 0, "delta": {}, "finish_reason": "tool_calls", "logprobs": null, "token_ids": null, '
        '"stop_reason": null}]}'
    )


async def test_lightllms_own_stream_has_no_space_and_no_end_mark() -> None:
    token = '"count_output_tokens":%d,"prompt_tokens":2,"logprobs":null},"generated_text":null,"finished":%s,'
    rest = '"details":null,"input_usage":null}\n\n'
    body = {"inputs": "The sky", "parameters": {"max_new_tokens": 2}}
    assert await answer("lightllm", "/generate_stream", body) == (
        'data:{"token":{"id":37628,"text":" This","logprob":-0.629,"special":false,'
        + token % (1, "false")
        + '"finish_reason":null,'
        + rest
        + 'data:{"token":{"id":37598,"text":" simulat","logprob":-0.199,"special":false,'
        + token % (2, "true")
        + '"finish_reason":"length",'
        + rest
    )
    assert await answer("lightllm", "/", body | {"stream": True}) == await answer("lightllm", "/generate_stream", body)


async def test_lightllms_own_whole_answer_has_no_content_type() -> None:
    async with serve(settings("lightllm")) as engine:
        body = {"inputs": [5, 6], "parameters": {"max_new_tokens": 2}}
        response = await engine.http.post("/generate", json=body)
        assert "content-type" not in response.headers
        assert len(response.json()["generated_text"]) == 1
        assert (response.json()["count_output_tokens"], response.json()["prompt_tokens"]) == (2, 2)


async def test_an_sglang_stream() -> None:
    chunk = '{"index":0,"delta":{"reasoning_content":null%s},"logprobs":null,"finish_reason":%s,"matched_stop":%s}]}'
    assert await answer("sglang", CHAT, TWO | STREAM) == sse(
        SGLANG_HEAD,
        [
            chunk % (',"role":"assistant","content":""', "null", "null"),
            chunk % (',"content":"This"', "null", "null"),
            chunk % (',"content":" simulat"', "null", "null"),
            chunk % ("", '"length"', "null"),
            '],"usage":{"prompt_tokens":10,"total_tokens":12,"completion_tokens":2,"prompt_tokens_details":null,'
            '"reasoning_tokens":0,"completion_tokens_details":null}}',
        ],
    )
    stopped = await answer("sglang", CHAT, STOP | {"stream": True})
    assert stopped.endswith(sse(SGLANG_HEAD, [chunk % ("", '"stop"', '" simulat"')]))
    by_itself = await answer("sglang", CHAT, {"messages": SKY, "stream": True})
    assert by_itself.endswith('"finish_reason":"stop","matched_stop":2}]}\n\ndata: [DONE]\n\n')


async def test_an_sglang_tool_call_is_full_of_nulls() -> None:
    call = (
        '{"index":0,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":[{"id":%s,"index":0,'
        '"type":"function","function":{"name":%s,"arguments":"%s"}}]},"logprobs":null,"finish_reason":null,'
        '"matched_stop":null}],"usage":null}'
    )
    text = await answer("sglang", CHAT, CALL | {"stream": True})
    calls = sse(SGLANG_HEAD, [call % ('"call_ID"', '"now"', ""), call % ("null", "null", "{")], "")
    assert calls in text
    assert '"finish_reason":"tool_calls"' in text


async def test_sglangs_own_stream_repeats_the_text_so_far() -> None:
    body = {"text": "The sky", "sampling_params": {"max_new_tokens": 2}, "stream": True, "rid": "r"}
    meta = '"weight_version":"default","total_retractions":0,"completion_tokens":%d,"cached_tokens":0'
    first, second, done, rest = (await answer("sglang", "/generate", body)).split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert first == (
        'data: {"text":" This","output_ids":[37628],"meta_info":{"id":"r","finish_reason":null,"prompt_tokens":2,'
        + meta % 1
        + "}}"
    )
    assert second.startswith(
        'data: {"text":" This simulat","output_ids":[37628,37598],"meta_info":{"id":"r","finish_reason":'
        '{"type":"length","length":2},"prompt_tokens":2,' + meta % 2 + ',"e2e_latency":'
    )


async def test_a_llamacpp_stream_ends_with_timings() -> None:
    chunk = '{"choices":[{"finish_reason":%s,"index":0,"delta":%s}],' + LLAMACPP_TAIL
    text = await answer("llamacpp", CHAT, TWO | STREAM)
    start = sse(
        "",
        [
            chunk % ("null", '{"role":"assistant","content":null}') + "}",
            chunk % ("null", '{"content":"This"}') + "}",
            chunk % ("null", '{"content":" simulat"}') + "}",
            chunk % ('"length"', "{}") + "}",
        ],
        "",
    )
    usage = (
        '"usage":{"completion_tokens":2,"prompt_tokens":10,"total_tokens":12,'
        '"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":10,'
    )
    assert text.startswith(start + 'data: {"choices":[],' + LLAMACPP_TAIL + "," + usage)
    assert text.endswith("}}\n\ndata: [DONE]\n\n")
    unasked = (await answer("llamacpp", CHAT, TWO | {"stream": True})).split("\n\n")[-3]
    assert unasked.startswith("data: " + chunk % ('"length"', "{}") + ',"timings":{"cache_n":0,')


async def test_a_llamacpp_tool_call_begins_with_its_first_argument() -> None:
    chunk = '{"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[%s]}}],' + LLAMACPP_TAIL + "}"
    async with serve(settings("llamacpp")) as engine:
        text = steady((await engine.http.post(CHAT, json=CALL | {"stream": True})).text)
    head = '{"index":0,"id":"ID","type":"function","function":{"name":"now","arguments":"{"}}'
    assert sse("", [chunk % head, chunk % '{"index":0,"function":{"arguments":"}"}}'], "") in text
    assert '"finish_reason":"tool_calls"' in text


async def test_llamacpps_own_stream() -> None:
    body = {"prompt": "The sky", "n_predict": 2, "stream": True, "return_tokens": True}
    first, second, last, rest = (await answer("llamacpp", "/completion", body)).split("\n\n")
    assert rest == ""
    token = '"stop":false,"id_slot":-1,"tokens_predicted":%d,"tokens_evaluated":2}'
    assert first == 'data: {"index":0,"content":" This","tokens":[37628],' + token % 1
    assert second == 'data: {"index":0,"content":" simulat","tokens":[37598],' + token % 2
    assert last.startswith(
        'data: {"index":0,"content":"","tokens":[],"id_slot":0,"stop":true,"model":"m","tokens_predicted":2,'
        '"tokens_evaluated":2,"generation_settings":{},"prompt":"The sky","has_new_line":false,"truncated":false,'
        '"stop_type":"limit","stopping_word":"","tokens_cached":4,"timings":{'
    )


async def test_llamacpp_takes_minus_one_for_no_limit_and_zero_for_one_token() -> None:
    async with serve(settings("llamacpp")) as engine:
        for limit, finish in ((-1, "stop"), (0, "length")):
            body = {"messages": SKY, "max_tokens": limit}
            choice = (await engine.http.post(CHAT, json=body)).json()["choices"][0]
            assert choice["finish_reason"] == finish


WHOLE = {
    "openai": '{"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":'
    '{"role":"assistant","content":"This simulat","refusal":null,"annotations":[]},'
    '"logprobs":null,"finish_reason":"length"'
    '}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0,'
    '"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default",'
    '"system_fingerprint":"fp_simulated"}',
    "tgi": '{"id":"","object":"chat.completion","created":0,"model":"m","system_fingerprint":"3.3.7+simulated-native",'
    '"choices":[{"index":0,"message":{"role":"assistant","content":"This simulat"},'
    '"logprobs":null,"finish_reason":"length"'
    '}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}',
    "ollama": '{"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"m","system_fingerprint":"fp_ollama",'
    '"choices":[{"index":0,"message":{"role":"assistant","content":"This simulat"},"finish_reason":"length"}],'
    '"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}',
    "lightllm": '{"id":"1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":'
    '"assistant","content":"This simulat","reasoning":null,"tool_calls":null},'
    '"logprobs":null,"finish_reason":"length"}],'
    '"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0,'
    '"audio_tokens":0}}}',
    "sglang": '{"id":"ID","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":'
    '"assistant","content":"This simulat","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":'
    '"length","matched_stop":null}],"usage":{"prompt_tokens":10,"total_tokens":12,"completion_tokens":2,'
    '"prompt_tokens_details":null,"reasoning_tokens":0,"completion_tokens_details":null},"metadata":{"weight_version":'
    '"default"}}',
}


@pytest.mark.parametrize("dialect", WHOLE)
async def test_a_whole_answer(dialect: str) -> None:
    assert await answer(dialect, CHAT, TWO) == WHOLE[dialect]


async def test_a_whole_llamacpp_answer() -> None:
    start = (
        '{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":"This simulat"}}],'
        '"created":0,"model":"m","system_fingerprint":"b11434-simulated","object":"chat.completion","usage":'
        '{"completion_tokens":2,"prompt_tokens":10,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0}},'
        '"id":"chatcmpl-ID","timings":{"cache_n":0,"prompt_n":10,'
    )
    assert (await answer("llamacpp", CHAT, TWO)).startswith(start)
