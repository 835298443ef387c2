"""Laws of what is put right in engines' chunks and answers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.openai_shape import (
    BROKEN,
    ToolCalls,
    add_usage,
    both_reasoning_names,
    finish_reason,
    has_output,
    public_usage,
    read_usage,
)
from adapters.types import EngineFailed, Usage

Json = dict[str, Any]


def pieces(call_id: str | None, index: int | None, count: int, *, repeats_id: bool = False) -> list[Json]:
    """One call as an engine streams it: id and name first, then its arguments."""
    made: list[Json] = []
    for n in range(count):
        piece: Json = {"function": {"arguments": f"{call_id}{n}"}}
        if index is not None:
            piece["index"] = index
        if n == 0:
            piece["type"] = "function"
            piece["function"]["name"] = f"f_{call_id}"
        if call_id is not None and (n == 0 or repeats_id):
            piece["id"] = call_id
        made.append(piece)
    return made


def glued(deltas: list[Json]) -> dict[int, str]:
    """What a client makes of them: the arguments joined by index."""
    joined: dict[int, str] = {}
    for delta in deltas:
        joined[delta["index"]] = joined.get(delta["index"], "") + delta["function"]["arguments"]
    return joined


def counts() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 4), min_size=1, max_size=6)


@settings(deadline=None)
@given(counts=counts(), index=st.sampled_from([0, 3, None]), repeats_id=st.booleans(), at_once=st.booleans())
def test_calls_that_share_an_index_are_told_apart_by_their_ids(
    counts: list[int], index: int | None, repeats_id: bool, at_once: bool
) -> None:
    calls = [pieces(f"c{i}", index, count, repeats_id=repeats_id) for i, count in enumerate(counts)]
    deltas = [piece for call in calls for piece in call]
    tools = ToolCalls()
    for batch in [deltas] if at_once else [[delta] for delta in deltas]:
        tools.repair(batch)
    assert glued(deltas) == {i: "".join(f"c{i}{n}" for n in range(count)) for i, count in enumerate(counts)}


@settings(deadline=None)
@given(counts=counts(), seed=st.randoms(use_true_random=False))
def test_right_pieces_are_left_alone_however_calls_interleave(counts: list[int], seed: Any) -> None:
    """OpenAI begins call n+1 after call n; later pieces may come in any order."""
    calls = [pieces(f"c{i}", i, count) for i, count in enumerate(counts)]
    deltas = [call[0] for call in calls]
    rest = [piece for call in calls for piece in call[1:]]
    seed.shuffle(rest)
    deltas += rest
    before = deepcopy(deltas)
    assert not ToolCalls().repair(deltas)
    assert deltas == before


@settings(deadline=None)
@given(counts=counts(), first=st.integers(1, 9))
def test_indexes_always_count_from_zero(counts: list[int], first: int) -> None:
    deltas = [piece for i, count in enumerate(counts) for piece in pieces(f"c{i}", first + i, count)]
    assert ToolCalls().repair(deltas)
    assert list(glued(deltas)) == list(range(len(counts)))


@settings(deadline=None)
@given(counts=counts(), index=st.sampled_from([0, None]))
def test_repairing_twice_changes_nothing_more(counts: list[int], index: int | None) -> None:
    deltas = [piece for i, count in enumerate(counts) for piece in pieces(f"c{i}", index, count)]
    ToolCalls().repair(deltas)
    again = deepcopy(deltas)
    assert not ToolCalls().repair(again)
    assert again == deltas


def test_an_id_that_comes_after_the_first_piece_begins_no_new_call() -> None:
    deltas: list[Json] = [
        {"index": 0, "type": "function", "function": {"name": "f", "arguments": "a"}},
        {"index": 0, "id": "c0", "function": {"arguments": "b"}},
    ]
    assert not ToolCalls().repair(deltas)
    assert glued(deltas) == {0: "ab"}


def test_an_empty_id_is_no_id() -> None:
    deltas = [*pieces("c0", 0, 1), {"index": 0, "id": "", "function": {"arguments": "x"}}]
    assert not ToolCalls().repair(deltas)


def test_a_new_name_at_an_index_in_use_begins_a_call_of_its_own() -> None:
    deltas: list[Json] = [
        {"index": 0, "function": {"name": "f", "arguments": "{}"}},
        {"index": 0, "function": {"name": "g", "arguments": "[]"}},
    ]
    ToolCalls().repair(deltas)
    assert glued(deltas) == {0: "{}", 1: "[]"}


def test_there_are_calls_once_one_has_come() -> None:
    tools = ToolCalls()
    assert not tools
    tools.repair(pieces("c0", 0, 1))
    assert tools


# --- usage

TOKENS = st.integers(0, 10_000)


@settings(deadline=None)
@given(prompts=st.lists(TOKENS, min_size=1, max_size=4), n=st.integers(1, 4), data=st.data())
def test_usage_of_each_choice_adds_up_and_a_prompt_counts_once(prompts: list[int], n: int, data: st.DataObject) -> None:
    completions = data.draw(st.lists(TOKENS, min_size=len(prompts) * n, max_size=len(prompts) * n))
    total: Json | None = None
    for i, completion in enumerate(completions):
        prompt = prompts[i // n]
        part: Json = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
        }
        total = add_usage(total, part, choices_per_prompt=n)
    assert total is not None
    shown = public_usage(total)
    assert shown["prompt_tokens"] == sum(prompts)
    assert shown["completion_tokens"] == sum(completions)
    assert shown["total_tokens"] == sum(prompts) + sum(completions)
    assert shown["prompt_tokens_details"]["cached_tokens"] == sum(prompt // 2 for prompt in prompts)
    assert read_usage(shown) == Usage(sum(prompts), sum(completions), shown["prompt_tokens_details"]["cached_tokens"])


@settings(deadline=None)
@given(prompt=TOKENS, completion=TOKENS, n=st.integers(1, 4))
def test_usage_of_one_choice_alone_is_itself(prompt: int, completion: int, n: int) -> None:
    part = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    assert public_usage(add_usage(None, part, choices_per_prompt=n)) == part


def test_adding_leaves_the_parts_alone_and_shows_nothing_of_its_own() -> None:
    part: Json = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "extra": "kept"}
    before = deepcopy(part)
    total = add_usage(add_usage(None, part, choices_per_prompt=2), part, choices_per_prompt=2)
    assert part == before
    assert public_usage(total) == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "extra": "kept"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        ({"prompt_tokens": 5}, Usage(5, 0)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            Usage(5, 2, 4, 1),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(5, 2)),
        ({"prompt_tokens": "5", "completion_tokens": 2}, None),
        ({"prompt_tokens": None, "completion_tokens": 2}, None),
        ({"completion_tokens": 2}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_is_read_or_there_is_none(value: object, expected: Usage | None) -> None:
    assert read_usage(value) == expected


# --- output, reasons, reasoning


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning_content": "a"},
        {"reasoning": "a"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0}]},
        {"role": "assistant", "content": "a"},
    ],
)
def test_content_reasoning_calls_and_refusals_are_output(delta: Json) -> None:
    assert has_output({"index": 0, "delta": delta})


@pytest.mark.parametrize(
    "delta", [{}, {"role": "assistant"}, {"content": ""}, {"content": None}, {"tool_calls": []}, None]
)
def test_a_role_and_empty_fields_are_no_output(delta: Json | None) -> None:
    assert not has_output({"index": 0, "delta": delta, "text": ""})


@pytest.mark.parametrize("reason", sorted(BROKEN))
def test_a_reason_that_is_no_end_breaks_the_answer(reason: str) -> None:
    with pytest.raises(EngineFailed, match=reason):
        finish_reason({"finish_reason": reason}, saw_tool_calls=False)


@pytest.mark.parametrize(
    "reason", ["stop", "length", "tool_calls", "content_filter", "function_call", None, "unheard_of"]
)
def test_openai_reasons_and_unknown_ones_stay(reason: str | None) -> None:
    choice: Json = {"finish_reason": reason}
    assert not finish_reason(choice, saw_tool_calls=False)
    assert choice == {"finish_reason": reason}


@pytest.mark.parametrize("reason", ["stop", "eos", "eos_token"])
def test_a_stop_after_calls_says_so(reason: str) -> None:
    choice: Json = {"finish_reason": reason}
    assert finish_reason(choice, saw_tool_calls=True)
    assert choice == {"finish_reason": "tool_calls"}


def test_a_cap_hit_after_calls_stays_a_cap_hit() -> None:
    choice: Json = {"finish_reason": "length"}
    assert not finish_reason(choice, saw_tool_calls=True)
    assert choice == {"finish_reason": "length"}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_given_under_both_names(name: str) -> None:
    message: Json = {name: "hm"}
    assert both_reasoning_names(message)
    assert message == {"reasoning": "hm", "reasoning_content": "hm"}
    assert not both_reasoning_names(message)


@pytest.mark.parametrize("message", [{}, {"reasoning": ""}, {"reasoning": None}, {"reasoning": {"effort": "low"}}])
def test_what_is_no_reasoning_text_is_left_alone(message: Json) -> None:
    before = deepcopy(message)
    assert not both_reasoning_names(message)
    assert message == before
