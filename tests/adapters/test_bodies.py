"""Request bodies: a skeleton that means the same, and changes that change nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.bodies import SKELETON_BYTES, BadBody, edit, read_object, skeleton

Json = dict[str, Any]
LONG = 4096
"""Strings with less JSON text than this come out of a skeleton as they are."""

PIECES = (
    "x",
    " ",
    "7",  # a string of these looks like an array of numbers
    "true",
    ", ",
    "]}[{:",
    r"\"",
    r"\\",
    r"\n",
    r"\u00e9",
    r"\u0022",
    r"\ud83d\ude00",
    "é",
    "漢",
    "😀",
    "/",
    "'",
)


def run_of(piece: str, size: int) -> str:
    return piece * (size // len(piece))


def quoted(runs: list[str]) -> str:
    return '"' + "".join(runs) + '"'


def count(n: int, step: int) -> str:
    return json.dumps(list(range(0, n * step, step)))


def texts() -> st.SearchStrategy[str]:
    """The JSON text of a string: runs of one piece, from none to some windows long."""
    run = st.builds(run_of, st.sampled_from(PIECES), st.sampled_from([1, 5, 4090, 9000]))
    return st.lists(run, max_size=5).map(quoted)


def numbers() -> st.SearchStrategy[str]:
    return st.builds(count, st.sampled_from([0, 3, 4000]), st.integers(1, 9))


def documents() -> st.SearchStrategy[str]:
    """JSON text of an object with long and short strings at any position."""
    leaf = st.one_of(texts(), numbers(), st.sampled_from(["1", "-2.5e3", "null", "true", '"short"', '"a\\"b"', '""']))

    def inside(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        members = st.lists(st.tuples(texts(), value), max_size=3)
        items = st.lists(value, max_size=3)
        return members.map(as_object_text) | items.map(lambda texts: "[" + ", ".join(texts) + "]")

    value = st.recursive(leaf, inside, max_leaves=4)
    return st.lists(st.tuples(texts() | st.sampled_from(['"model"', '"messages"']), value), max_size=4).map(
        as_object_text
    )


def as_object_text(members: list[tuple[str, str]]) -> str:
    return "{" + ",\n ".join(f"{key}: {value}" for key, value in members) + "}"


def pairs(raw: bytes) -> Any:
    """The document with every pair of an object kept, in order."""
    return json.loads(raw, object_pairs_hook=lambda members: ("object", members))


def assert_same_but_for_long_strings(cut: Any, whole: Any) -> None:
    if isinstance(whole, str):
        assert isinstance(cut, str)
        if cut != whole:
            assert len(whole) >= LONG // 12, "the longest way to write a character takes twelve bytes"
            assert len(cut) < len(whole)
            return
        return
    if isinstance(whole, (list, tuple)):
        ours, theirs = cast("list[Any]", cut), cast("list[Any]", whole)
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same_but_for_long_strings(one, other)
        return
    assert type(cut) is type(whole)
    assert cut == whole


# --- the skeleton


@settings(deadline=None)
@example(text='{"a": "' + "x" * 20_000 + r"\\" * 5000 + '", "b": 1}')
@example(text='{"a": "' + r"\"" + "x" * 20_000 + r"\\\"" + '", "model": "m"}')
@example(text='{"a": "' + "7" * 20_000 + "x" + '", "b": [' + "7, " * 9000 + "7]}")
@example(text='{"' + "k" * 20_000 + '": {"' + "é" * 9000 + '": "v"}}')
@given(text=documents())
def test_a_skeleton_is_the_same_json_but_for_long_strings(text: str) -> None:
    raw = text.encode()
    assert_same_but_for_long_strings(pairs(skeleton(raw)), pairs(raw))


@settings(deadline=None)
@given(text=documents(), at=st.integers(0, 12_000))
def test_where_the_windows_fall_does_not_matter(text: str, at: int) -> None:
    raw = b" " * at + text.encode()
    assert_same_but_for_long_strings(pairs(skeleton(raw)), pairs(raw))


@settings(deadline=None)
@given(data=st.binary(max_size=200), size=st.sampled_from([1, 100, 5000]))
def test_a_skeleton_of_what_is_not_json_is_still_bytes(data: bytes, size: int) -> None:
    skeleton(data * size)


@settings(deadline=None)
@given(text=documents(), where=st.floats(0, 1), put=st.sampled_from([b"", b'"', b"\\", b"}", b"x" * 5000, b"\x00"]))
def test_a_large_body_that_is_broken_is_told_apart_or_read(text: str, where: float, put: bytes) -> None:
    raw = text.encode() + b" " * SKELETON_BYTES
    at = int(where * len(text))
    with suppress(BadBody):
        assert isinstance(read_object(raw[:at] + put + raw[at + 1 :]), dict)


def test_a_25_mb_image_comes_out_as_a_few_bytes() -> None:
    image = b"data:image/png;base64," + b"iVBORw0KGgo/+9" * 1_900_000
    raw = b'{"model": "m", "messages": [{"role": "user", "content": [{"url": "%b"}]}], "n": 2}' % image
    body = read_object(raw)
    assert body["model"] == "m"
    assert body["n"] == 2
    assert len(body["messages"][0]["content"][0]["url"]) < LONG
    assert len(skeleton(raw)) < 2 * LONG


@pytest.mark.parametrize("size_bytes", [SKELETON_BYTES, SKELETON_BYTES + 1])
def test_only_a_large_body_is_shortened(size_bytes: int) -> None:
    empty = len(b'{"model":"m","prompt":""}')
    text = "x" * (size_bytes - empty)
    prompt = read_object(b'{"model":"m","prompt":"%b"}' % text.encode())["prompt"]
    assert (prompt == text) == (size_bytes <= SKELETON_BYTES)


def test_short_strings_beside_long_ones_are_kept() -> None:
    said = [{"role": "user", "content": f"turn {i} " + "long " * 4000, "name": f"n{i}"} for i in range(20)]
    body = read_object(json.dumps({"messages": said, "stop": ["a", "b"], "model": "m"}).encode())
    assert [turn["name"] for turn in body["messages"]] == [f"n{i}" for i in range(20)]
    assert [turn["role"] for turn in body["messages"]] == ["user"] * 20
    assert body["stop"] == ["a", "b"]


def test_token_ids_are_kept() -> None:
    ids = list(range(100_000))
    assert read_object(json.dumps({"model": "m", "prompt": ids}).encode())["prompt"] == ids


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"1", b'"a"', b"null", b'{"a":}', b"\xff", b'{"a":1} x'])
def test_what_is_no_object_is_told(raw: bytes) -> None:
    with pytest.raises(BadBody, match="request body"):
        read_object(raw)


# --- changes

SCALARS: tuple[Any, ...] = (None, True, 0, -1, 2**63 - 1, 0.1, 1e-9, "", "m", "model", "a\nb", 'q"uo\\te', "é😀")
KEYS = ("model", "stream", "stream_options", "messages", "a", "é", 'say "model"', "metadata", "")


def values() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.sampled_from(SCALARS),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        max_leaves=8,
    )


def with_model(rest: Json, name: str, has: bool) -> Json:
    return {**rest, "model": name} if has else rest


def bodies() -> st.SearchStrategy[Json]:
    """Objects that mostly have a model, and may have one deeper down too."""
    names = st.sampled_from(["m", "org/model", "é", ""])
    return st.builds(with_model, st.dictionaries(st.sampled_from(KEYS), values(), max_size=5), names, st.booleans())


ESCAPED_KEYS = ('"mod\\u0065l"', '"\\u006dodel"', '"\\u006Dodel"')


def spelled(body: Json, spelling: str) -> bytes:
    """The body as some client would write it."""
    if spelling == "compact":
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    if spelling == "pretty":
        return json.dumps(body, indent=2).encode() + b"\n"
    if spelling == "spaced":
        return b" \r\n\t" + json.dumps(body, separators=(" , ", " \n: ")).encode() + b" "
    if spelling == "twice":  # of a key that comes twice the last one counts
        return b'{"model": "first", ' + json.dumps(body).encode()[1:] if body else b"{}"
    return json.dumps(body).replace('"model":', ESCAPED_KEYS[len(body) % 3] + ":").encode()


SPELLINGS = ("compact", "pretty", "spaced", "twice", "escaped")


@settings(deadline=None)
@given(
    body=bodies(),
    spelling=st.sampled_from(SPELLINGS),
    model=st.sampled_from([None, "m", "engine/model", 'od"d\\', "é"]),
    add=st.dictionaries(st.sampled_from(["stream", "stream_options", "a", "extra"]), values(), max_size=2),
    drop=st.lists(st.sampled_from(KEYS[1:]), max_size=3, unique=True),
)
@example(body={"metadata": {"model": "deep"}}, spelling="compact", model="e", add={}, drop=[])
@example(body={"model": "m", "metadata": {"model": "m"}}, spelling="escaped", model="e", add={"a": 1}, drop=[])
@example(body={"a": "model", "model": "m"}, spelling="compact", model="e", add={}, drop=[])
@example(body={}, spelling="pretty", model="e", add={"stream": True}, drop=[])
def test_an_edit_changes_what_it_is_told_to_and_nothing_else(
    body: Json, spelling: str, model: str | None, add: Json, drop: list[str]
) -> None:
    raw = spelled(body, spelling)
    read = read_object(raw)
    add = {key: value for key, value in add.items() if key not in drop}
    expected = json.loads(raw)
    if model is not None and "model" in expected:
        expected["model"] = model
    expected |= add
    for key in drop:
        expected.pop(key, None)
    assert same(json.loads(edit(raw, read, model=model, add=add, drop=drop)), expected)


def same(one: Any, other: Any) -> bool:
    """Equal in value and type: 1, 1.0 and true are three things to an engine."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def test_nothing_to_change_is_the_same_bytes() -> None:
    raw = b' { "model" :"m" , "x": 1.50 } '
    assert edit(raw, read_object(raw), model="m") == raw
    assert edit(raw, read_object(raw), drop=["absent"]) == raw


def test_a_change_is_spliced_into_the_clients_own_bytes() -> None:
    raw = b'{ "temperature" : 1.50, "model" : "m" ,"messages":[ ] }'
    changed = edit(raw, read_object(raw), model="engine", add={"stream": True})
    assert changed == b'{ "temperature" : 1.50, "model" : "engine" ,"messages":[ ] ,"stream":true}'


def test_numbers_that_no_double_holds_are_kept_when_spliced() -> None:
    raw = b'{"model":"m","seed":123456789012345678901234567890,"x":0.1000000000000000055511151231257827}'
    changed = edit(raw, read_object(raw), model="engine", add={"stream_options": {"include_usage": True}})
    assert b'"seed":123456789012345678901234567890,"x":0.1000000000000000055511151231257827' in changed


def test_numbers_above_64_bits_are_kept_when_the_body_is_written_anew() -> None:
    raw = b'{"model":"m","seed":123456789012345678901234567890,"user":null,"stream":false}'
    changed = edit(raw, read_object(raw), model="engine", add={"stream": True}, drop=["user"])
    assert json.loads(changed) == {"model": "engine", "seed": 123456789012345678901234567890, "stream": True}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"metadata":{"model":"m"},"model":"m"}',
        b'{"metadata":{"model":"m"},"mod\\u0065l":"m"}',
        b'{"model":"a","model":"m"}',
        b'{"text":"a \\"model\\": \\"m\\" b","model":"m"}',
        b'{"text":"\\\\\\"model","model":"m"}',
        b'{"model":"m","tool":"model"}',
        b'{"model":"\\u006d"}',
        b'{"model":"m","messages":["\\"model\\":\\"m\\""]}',
    ],
)
def test_only_the_name_at_the_top_is_replaced(raw: bytes) -> None:
    changed = edit(raw, read_object(raw), model="engine")
    assert json.loads(changed) == {**json.loads(raw), "model": "engine"}


def test_a_body_without_a_model_gets_none() -> None:
    raw = b'{"input":"x"}'
    assert edit(raw, read_object(raw), model="engine") == raw


def large(head: Mapping[str, Any], text: str = "x" * 300_000) -> bytes:
    return json.dumps({**head, "prompt": text}).encode()


@pytest.mark.parametrize("deep", [False, True])
def test_the_text_of_a_large_body_is_whole_after_a_change(deep: bool) -> None:
    text = 'say "model": \\ ' + "é😀\n" * 60_000
    raw = large({"model": "m", **({"metadata": {"model": "m"}} if deep else {}), "stream_options": {}}, text)
    changed = json.loads(edit(raw, read_object(raw), model="engine", add={"stream_options": {"include_usage": True}}))
    assert changed == {**json.loads(raw), "model": "engine", "stream_options": {"include_usage": True}}


def test_a_large_body_with_a_long_model_name_is_changed_all_the_same() -> None:
    raw = large({"model": "m" * 10_000})
    assert json.loads(edit(raw, read_object(raw), model="engine"))["model"] == "engine"


def test_a_null_under_a_very_long_key_can_be_dropped() -> None:
    raw = large({"model": "m", "k" * 10_000: None, "user": None})
    body = read_object(raw)
    changed = json.loads(edit(raw, body, drop=[key for key, value in body.items() if value is None]))
    assert "user" not in changed
    assert changed["prompt"] == "x" * 300_000


@pytest.mark.parametrize("broken", [b"\\q", b"\xff", b"\n", b"\\ud800"])
def test_a_large_body_whose_long_string_is_broken_is_the_clients_fault(broken: bytes) -> None:
    """The skeleton cannot see it; writing the body anew does."""
    raw = b'{"model":"m","user":null,"prompt":"' + b"x" * 150_000 + broken + b"x" * 150_000 + b'"}'
    body = read_object(raw)
    with suppress(BadBody):
        edit(raw, body, model="engine", drop=["user"])
