"""OpenAI's requests in Ollama's words."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.ollama import OLLAMA
from adapters.types import EngineFailed, Operation
from tests.adapters.ollama_calls import HI, Json, call, sent

PNG = "iVBORw0KGgo="
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def dropped(body: Json, operation: Operation = "chat") -> tuple[str, ...]:
    return OLLAMA.encode(call(body, operation), "engine:8b").dropped


def refused(body: Json, operation: Operation = "chat") -> EngineFailed:
    with pytest.raises(EngineFailed) as caught:
        OLLAMA.encode(call(body, operation), "engine:8b")
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def chat(**fields: Any) -> Json:
    return sent({**HI, **fields})


def messages(*turns: Json) -> list[Json]:
    native: list[Json] = chat(messages=list(turns))["messages"]
    return native


def prompt(**fields: Any) -> Json:
    return sent({"model": "m", "prompt": "Once", **fields}, "text_completion")


# --- chat: fields


def test_a_plain_chat_says_no_more_than_it_must() -> None:
    assert chat() == {"model": "engine:8b", "messages": HI["messages"], "stream": False}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"temperature": 0, "top_p": 0.5, "seed": 7}, {"temperature": 0, "top_p": 0.5, "seed": 7}),
        ({"presence_penalty": -1, "frequency_penalty": 2}, {"presence_penalty": -1, "frequency_penalty": 2}),
        ({"top_k": 3, "min_p": 0.1, "typical_p": 0.9}, {"top_k": 3, "min_p": 0.1, "typical_p": 0.9}),
        ({"repetition_penalty": 1.2}, {"repeat_penalty": 1.2}),
        ({"repeat_penalty": 1.3, "repeat_last_n": 8}, {"repeat_penalty": 1.3, "repeat_last_n": 8}),
        ({"max_tokens": 16}, {"num_predict": 16}),
        ({"max_completion_tokens": 8}, {"num_predict": 8}),
        ({"max_completion_tokens": 8, "max_tokens": 16}, {"num_predict": 8}),
        ({"max_tokens": 16, "max_completion_tokens": None}, {"num_predict": 16}),
        ({"stop": "a"}, {"stop": ["a"]}),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"options": {"num_keep": 4, "mirostat": 1, "stop": "a"}}, {"num_keep": 4, "mirostat": 1, "stop": ["a"]}),
        ({"options": {"temperature": 1, "top_k": 9}, "temperature": 0}, {"temperature": 0, "top_k": 9}),
        ({"options": {"top_k": None, "seed": 1}}, {"seed": 1}),
    ],
)
def test_sampling_fields_become_options(fields: Json, options: Json) -> None:
    assert chat(**fields)["options"] == options
    assert prompt(**fields)["options"] == options
    assert dropped({**HI, **fields}) == ()


def test_nulls_are_left_out() -> None:
    sampling = dict.fromkeys(
        ("temperature", "top_p", "seed", "stop", "max_tokens", "max_completion_tokens", "logit_bias")
    )
    shapes = dict.fromkeys(
        ("tools", "tool_choice", "response_format", "n", "logprobs", "top_logprobs", "reasoning_effort")
    )
    others = dict.fromkeys(("reasoning", "think", "keep_alive", "truncate", "options", "format", "user", "unheard_of"))
    fields: Json = {**sampling, **shapes, **others}
    assert chat(**fields) == chat()
    assert dropped({**HI, **fields}) == ()


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        ({"type": "json_object"}, "json"),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"a": None}}}, {"a": None}),
    ],
)
def test_a_response_format_becomes_a_format(asked: Json, form: Any) -> None:
    assert chat(response_format=asked)["format"] == form
    assert prompt(response_format=asked)["format"] == form


def test_a_format_of_text_is_none() -> None:
    assert "format" not in chat(response_format={"type": "text"})


@pytest.mark.parametrize(
    ("effort", "think"),
    [("none", False), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "max"),
     ("xhigh", "max"), ("ultra", "max")],
)  # fmt: skip
def test_reasoning_effort_becomes_think(effort: str, think: bool | str) -> None:
    assert chat(reasoning_effort=effort)["think"] == think
    assert chat(reasoning={"effort": effort})["think"] == think


@pytest.mark.parametrize(
    ("fields", "think", "left_out"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}}, False, ()),
        ({"chat_template_kwargs": {"enable_thinking": True}}, None, ()),
        ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}, "low", ()),
        ({"chat_template_kwargs": {"enable_thinking": False, "x": 1}}, None, ("chat_template_kwargs",)),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, None, ("chat_template_kwargs",)),
        ({"chat_template_kwargs": {}}, None, ("chat_template_kwargs",)),
    ],
)
def test_other_engines_switch_of_thinking_is_obeyed(fields: Json, think: bool | str | None, left_out: Any) -> None:
    assert chat(**fields).get("think") == think
    assert dropped({**HI, **fields}) == left_out


@pytest.mark.parametrize("think", [True, False, "low"])
def test_the_engines_own_think_is_passed_on(think: bool | str) -> None:
    assert chat(think=think)["think"] == think


def test_the_engines_own_fields_are_passed_on() -> None:
    fields: Json = {"keep_alive": -1, "truncate": False, "shift": False, "format": "json"}
    assert chat(**fields) == {**chat(), **fields}
    assert chat(keep_alive=0)["keep_alive"] == 0


def test_logprobs_are_asked_for_in_the_same_words() -> None:
    native = chat(logprobs=True, top_logprobs=3)
    assert (native["logprobs"], native["top_logprobs"]) == (True, 3)
    assert "logprobs" not in chat(logprobs=False)
    assert "top_logprobs" not in chat(top_logprobs=3)


def test_tools_are_passed_on_without_nulls() -> None:
    given = {"type": "function", "function": {**TOOL["function"], "description": None, "strict": None}}
    assert chat(tools=[given], tool_choice="auto")["tools"] == [TOOL]
    assert "tools" not in chat(tools=[])


def test_no_tool_is_called_that_the_engine_is_not_told_of() -> None:
    native = chat(tools=[TOOL], tool_choice="none")
    assert "tools" not in native
    assert "tool_choice" not in native


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"tool_choice": "required", "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [TOOL]}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0]"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"continue_final_message": True}, "continue_final_message"),
    ],
)
def test_what_would_change_the_answers_shape_is_refused_by_name(fields: Json, param: str) -> None:
    error = refused({**HI, **fields})
    assert error.code == "unsupported_parameter"
    assert error.param == param
    assert "ollama" in error.message
    assert param in error.message


def test_shapes_that_are_the_usual_ones_are_no_matter() -> None:
    fields: Json = {"n": 1, "modalities": ["text"], "echo": False, "functions": [], "function_call": "auto"}
    assert chat(**fields) == chat()
    assert dropped({**HI, **fields}) == ()


def test_what_only_tunes_is_left_out_and_named() -> None:
    fields: Json = {"logit_bias": {"1": 2}, "verbosity": "low", "parallel_tool_calls": False, "best_of": 2}
    assert chat(**fields) == chat()
    assert dropped({**HI, **fields}) == ("logit_bias", "verbosity", "parallel_tool_calls", "best_of")


def test_what_has_no_effect_is_left_out_in_silence() -> None:
    fields: Json = {"user": "u", "metadata": {}, "store": True, "logit_bias": {}, "parallel_tool_calls": True}
    assert chat(**fields) == chat()
    assert dropped({**HI, **fields}) == ()


@pytest.mark.parametrize("option", ["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap"])
def test_options_that_would_load_the_model_anew_are_left_out_and_named(option: str) -> None:
    body: Json = {**HI, "options": {option: 1, "top_k": 2}}
    assert sent(body)["options"] == {"top_k": 2}
    assert dropped(body) == (f"options.{option}",)


def test_names_that_are_fit_for_no_header_are_not_told() -> None:
    names = {"é": 1, "a\r\nset-cookie: b": 1, "x" * 65: 1, "a b": 1, "fine": 1}
    assert dropped({**HI, **names}) == ("fine",)
    assert len(dropped({**HI, **{f"f{n}": 1 for n in range(1000)}})) == 32


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "0.5"}, "temperature"),
        ({"top_k": True}, "top_k"),
        ({"max_tokens": [1]}, "max_tokens"),
        ({"options": {"seed": "1"}}, "options.seed"),
        ({"options": {"stop": [1]}}, "options.stop"),
        ({"options": []}, None),
        ({"options": [1]}, "options"),
        ({"stop": 1}, "stop"),
        ({"stop": ["a", 1]}, "stop"),
        ({"tools": {"a": 1}}, "tools"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"reasoning_effort": {}}, "reasoning_effort"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": []}}, "response_format.json_schema.schema"),
    ],
)
def test_wrong_types_are_refused_since_the_engine_would_call_them_its_own_failure(
    fields: Json, param: str | None
) -> None:
    if param is None:
        assert chat(**fields) == chat()
        return
    error = refused({**HI, **fields})
    assert (error.code, error.param) == ("invalid_value", param)


@pytest.mark.parametrize("operation", ["chat", "text_completion"])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_limit_of_no_token_is_refused_since_the_engine_would_take_it_for_none(
    field: str, operation: Operation
) -> None:
    error = refused({**HI, "prompt": "hi", field: 0}, operation)
    assert (error.code, error.param) == ("invalid_value", field)
    assert chat(max_tokens=-1)["options"] == {"num_predict": -1}, "Ollama's own word for no limit"


# --- chat: messages


def test_developers_are_the_system() -> None:
    turns = [{"role": role, "content": role} for role in ("system", "developer", "user", "developer")]
    assert [turn["role"] for turn in messages(*turns)] == ["system", "system", "user", "system"]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_parts_of_text_become_one_text(role: str) -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert messages({"role": role, "content": parts}) == [{"role": role, "content": "A\nB"}]


@pytest.mark.parametrize("mime", ["image/png", "IMAGE/JPEG", "", "image/svg+xml;charset=utf-8"])
def test_images_in_data_urls_stand_beside_the_text(mime: str) -> None:
    url = f"data:{mime};base64,{PNG}"
    parts = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": url},
    ]
    assert messages({"role": "user", "content": parts}) == [{"role": "user", "content": "what?", "images": [PNG, PNG]}]


def test_sound_is_refused() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    error = refused({**HI, "messages": [{"role": "user", "content": [part]}]})
    assert (error.code, error.param) == ("unsupported_parameter", "messages[0].content[0]")


def test_calls_have_their_arguments_as_an_object_and_results_the_tools_name() -> None:
    asked = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"b":1,"a":[null]}'}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"function": {"name": "h", "arguments": {"a": 1}}},
    ]
    native = messages(
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": asked},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "name": "mine", "content": [{"type": "text", "text": "one"}]},
        {"role": "tool", "tool_call_id": "c9", "content": "?"},
    )
    assert native[1]["content"] == ""
    assert [(c.get("id"), c["function"]) for c in native[1]["tool_calls"]] == [
        ("c1", {"index": 0, "name": "f", "arguments": {"b": 1, "a": [None]}}),
        ("c2", {"index": 1, "name": "g", "arguments": {}}),
        (None, {"index": 2, "name": "h", "arguments": {"a": 1}}),
    ]
    assert native[2:] == [
        {"role": "tool", "content": "two", "tool_call_id": "c2", "tool_name": "g"},
        {"role": "tool", "content": "one", "tool_call_id": "c1", "tool_name": "mine"},
        {"role": "tool", "content": "?", "tool_call_id": "c9"},
    ]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_of_earlier_turns_is_kept(field: str) -> None:
    turn = {"role": "assistant", "content": "a", field: "because"}
    assert messages(turn) == [{"role": "assistant", "content": "a", "thinking": "because"}]
    assert messages({**turn, field: None}) == [{"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ([{"type": "image_url", "image_url": {"url": "https://e.test/a.png"}}], "messages[0].content[0].image_url"),
        (["a"], "messages[0].content[0]"),
        ([{"type": "file", "file": {"file_id": "f"}}], "messages[0].content[0]"),
        ([{"type": "text", "text": "a"}, {"type": "video_url"}], "messages[0].content[1]"),
    ],
)
def test_content_that_cannot_be_carried_is_refused_by_its_place(content: Any, param: str) -> None:
    error = refused({**HI, "messages": [{"role": "user", "content": content}]})
    assert (error.code, error.param) == ("unsupported_parameter", param)
    assert "ollama" in error.message


@pytest.mark.parametrize(
    ("turn", "place"),
    [
        ({"role": "user", "content": 1}, ".content"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, ".content[0].image_url"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png,a"}]},
            ".content[0].image_url",
        ),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "data:;base64,"}]}, ".content[0].image_url"),
        ({"content": "a"}, ".role"),
        ("a", ""),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": ""}}]}, ".tool_calls[0].function.name"),
    ],
)
def test_messages_that_are_none_are_refused_by_their_place(turn: Any, place: str) -> None:
    error = refused({**HI, "messages": [turn]})
    assert (error.code, error.param) == ("invalid_value", f"messages[0]{place}")


@pytest.mark.parametrize("arguments", ["{", "[]", "1", "null", 1, []])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    error = refused({**HI, "messages": [{"role": "assistant", "tool_calls": calls}]})
    assert error.param == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("turns", [[], None, "hi", {}])
def test_a_chat_without_messages_is_refused_since_it_would_only_load_the_model(turns: Any) -> None:
    assert refused({**HI, "messages": turns}).param == "messages"


@pytest.mark.parametrize("field", ["function_call", "tool_calls"])
def test_calls_of_another_kind_are_refused(field: str) -> None:
    value: Any = {"name": "f", "arguments": "{}"} if field == "function_call" else [{"type": "custom"}]
    assert refused({**HI, "messages": [{"role": "assistant", field: value}]}).code == "unsupported_parameter"


# --- completions


def test_a_completion_goes_to_the_model_as_it_is() -> None:
    assert prompt() == {"model": "engine:8b", "prompt": "Once", "raw": True, "think": False, "stream": False}
    assert prompt(prompt=["Once"]) == prompt()


def test_a_suffix_needs_the_models_template() -> None:
    native = prompt(suffix="end")
    assert native["suffix"] == "end"
    assert "raw" not in native
    assert prompt(suffix="") == prompt()


@pytest.mark.parametrize(("asked", "top"), [(0, 0), (3, 3), (True, None)])
def test_completions_ask_for_logprobs_by_number(asked: int, top: int | None) -> None:
    native = prompt(logprobs=asked)
    assert native["logprobs"] is True
    assert native.get("top_logprobs") == top
    assert "logprobs" not in prompt(logprobs=False)


@pytest.mark.parametrize("given", [["a", "b"], [1, 2], [[1, 2]], [], "", None, 1, {}])
def test_prompts_that_are_not_one_text_are_refused(given: Any) -> None:
    error = refused({"model": "m", "prompt": given}, "text_completion")
    assert (error.code, error.param) == ("unsupported_parameter", "prompt")


def test_echo_is_refused() -> None:
    assert refused({"model": "m", "prompt": "a", "echo": True}, "text_completion").param == "echo"


# --- embeddings


@pytest.mark.parametrize("texts", ["a", ["a", "b"]])
def test_texts_are_embedded(texts: Any) -> None:
    body: Json = {"model": "m", "input": texts, "dimensions": 64, "encoding_format": "base64", "user": "u"}
    body |= {"keep_alive": "1m", "options": {"num_ctx": 1}, "unheard_of": 1}
    assert sent(body, "embeddings") == {"model": "engine:8b", "input": texts, "dimensions": 64, "keep_alive": "1m"}
    assert dropped(body, "embeddings") == ("unheard_of", "options.num_ctx")
    upstream = OLLAMA.encode(call(body, "embeddings"), "engine:8b")
    assert not upstream.stream


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": [1, 2]}, "unsupported_parameter", "input"),
        ({"input": [[1], [2]]}, "unsupported_parameter", "input"),
        ({"input": None}, "unsupported_parameter", "input"),
        ({"input": ""}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": "a", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
    ],
)
def test_other_inputs_are_refused(fields: Json, code: str, param: str) -> None:
    error = refused({"model": "m", **fields}, "embeddings")
    assert (error.code, error.param) == (code, param)
