"""What endpoints were sent: the longest beginnings, in bounded memory, and nothing of what is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from policies.prefix_blocks import chain
from policies.prefix_map import ENTRY_BYTES, SPARE_BITS, PrefixMap

NAMES = ("a", "b", "c")
MEMORY_BYTES = 10_000_000


def path(*steps: int) -> tuple[int, ...]:
    """Blocks that stand for these steps and all before them."""
    return tuple(hash(steps[: end + 1]) for end in range(len(steps)))


PATHS = st.lists(st.integers(0, 2), max_size=6).map(lambda steps: path(*steps))


class Model(RuleBasedStateMachine):
    """The map against a set of all that was sent, with room for everything."""

    def __init__(self) -> None:
        super().__init__()
        self.map = PrefixMap(NAMES, MEMORY_BYTES)
        self.known: dict[str, set[int]] = {name: set() for name in NAMES}

    @rule(blocks=PATHS, name=st.sampled_from(NAMES))
    def send(self, blocks: tuple[int, ...], name: str) -> None:
        self.map.sent(blocks, name)
        self.known[name] |= set(blocks)

    @rule(name=st.sampled_from(NAMES), times=st.sampled_from([1, SPARE_BITS + 1]))
    def forget(self, name: str, times: int) -> None:
        for _ in range(times):
            self.map.sent(path(9), name)
            self.map.forget(name)
        self.known[name].clear()

    @rule(blocks=PATHS)
    def look(self, blocks: tuple[int, ...]) -> None:
        assert self.map.held(blocks) == held(self.known, blocks)

    @invariant()
    def nothing_had_to_go(self) -> None:
        assert self.map.evicted == 0


def held(known: dict[str, set[int]], blocks: Sequence[int]) -> dict[str, int]:
    leading = {name: next((i for i, b in enumerate(blocks) if b not in k), len(blocks)) for name, k in known.items()}
    return {name: count for name, count in leading.items() if count}


TestModel = Model.TestCase


@given(st.lists(st.tuples(PATHS, st.sampled_from(NAMES)), max_size=60), st.integers(1, 8))
def test_it_never_holds_more_than_its_bound_and_credits_nobody_for_what_he_was_not_sent(
    sends: list[tuple[tuple[int, ...], str]], room: int
) -> None:
    kept = PrefixMap(NAMES, room * (ENTRY_BYTES + (len(NAMES) + SPARE_BITS) // 7))
    assert kept.most_blocks == room
    known: dict[str, set[int]] = {name: set() for name in NAMES}
    for blocks, name in sends:
        kept.sent(blocks, name)
        known[name] |= set(blocks)
        assert len(kept) <= room
        assert kept.held(blocks).get(name, 0) == min(len(blocks), room), "the beginning outlives the rest"
        for other, count in kept.held(blocks).items():
            assert count <= held(known, blocks)[other]
    assert kept.evicted == 0 or len(kept) == room


def test_a_flood_of_prompts_leaves_what_is_in_use() -> None:
    kept = PrefixMap(NAMES, 1_000_000)
    hot = path(1, 2, 3)
    for flood in range(5 * kept.most_blocks):
        kept.sent([hash((flood, "flood"))], "b")
        if flood % 100 == 0:
            kept.sent(hot, "a")
    assert kept.held(hot) == {"a": 3}
    assert len(kept) == kept.most_blocks
    assert kept.evicted == 5 * kept.most_blocks + 3 - kept.most_blocks


def test_what_is_forgotten_of_one_is_kept_of_the_others() -> None:
    kept = PrefixMap(NAMES, MEMORY_BYTES)
    raw = b"p" * 4096
    blocks = chain(raw, 0, len(raw))
    for name in NAMES:
        kept.sent(blocks, name)
    kept.forget("b")
    assert kept.held(blocks) == {"a": 4, "c": 4}
    kept.sent(blocks[:2], "b")
    assert kept.held(blocks) == {"a": 4, "b": 2, "c": 4}


def test_the_least_memory_is_room_for_one_block() -> None:
    kept = PrefixMap(NAMES, 1)
    kept.sent(path(1, 2), "a")
    assert kept.held(path(1, 2)) == {"a": 1}
