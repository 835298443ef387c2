"""Which endpoint was sent which beginnings of prompts."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

ENTRY_BYTES = 256
"""What a block costs at most, but for its mask: its place in the order and the table, while that grows too."""
SPARE_BITS = 256
"""For endpoints that are forgotten; once all are used up, one walk through all blocks (0.1 s at 32 MiB) frees them."""
_NAMES = 256


class PrefixMap:
    """By block: a mask of the endpoints that were sent it; the blocks that were used last, in bounded memory.

    A block is touched after those that are longer, so it outlives them: an endpoint that was sent a block was sent all
    that lead to it, and where that ends is found by halving. An endpoint is forgotten by giving it another bit.

    Args:
        endpoint_ids: Of the pool.
        memory_bytes: The most that it may take.

    Attributes:
        most_blocks: How many blocks that is.
        evicted: Blocks that had to go for others.
    """

    def __init__(self, endpoint_ids: Iterable[str], memory_bytes: int) -> None:
        self._bits = {name: 1 << place for place, name in enumerate(endpoint_ids)}
        self._width = len(self._bits) + SPARE_BITS
        self._free = [1 << place for place in range(self._width - 1, len(self._bits) - 1, -1)]
        self._live = (1 << len(self._bits)) - 1
        self._used = 0
        self._masks: OrderedDict[int, int] = OrderedDict()
        self._names: dict[int, tuple[str, ...]] = {}
        self.most_blocks = max(memory_bytes // (ENTRY_BYTES + self._width // 7), 1)
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._masks)

    def held(self, blocks: Sequence[int]) -> dict[str, int]:
        """Returns how many of the leading blocks each endpoint was sent; only those that were sent some."""
        masks, live = self._masks, self._live
        found: dict[str, int] = {}
        reach, end = 0, len(blocks)
        mask = masks.get(blocks[0], 0) & live if blocks else 0
        if mask and masks.get(blocks[-1], 0) & live == mask:  # mostly all or nothing
            return dict.fromkeys(self._named(mask), end)
        while mask:
            # All of `mask` hold the first `reach`, not all hold the first `beyond`
            reach, beyond, less = reach + 1, end + 1, 0
            while beyond - reach > 1:
                middle = (reach + beyond) // 2
                there = masks.get(blocks[middle - 1], 0) & live & mask
                if there == mask:
                    reach = middle
                else:
                    beyond, less = middle, there
            found.update(dict.fromkeys(self._named(mask & ~less), reach))
            mask = less
        return found

    def sent(self, blocks: Sequence[int], endpoint_id: str) -> None:
        """The endpoint was sent a prompt with these beginnings."""
        if not blocks:
            return
        masks, bit = self._masks, self._bits[endpoint_id]
        if not masks.get(blocks[-1], 0) & bit:
            self._add(blocks, bit)
        deque(map(masks.move_to_end, reversed(blocks)), maxlen=0)
        over = len(masks) - self.most_blocks
        if over > 0:
            for _ in range(over):
                masks.popitem(last=False)
            self.evicted += over

    def forget(self, endpoint_id: str) -> None:
        """The endpoint's cache is not what it was."""
        bit = self._bits[endpoint_id]
        if not bit & self._used:
            return
        if not self._free:
            self._sweep()
        fresh = self._bits[endpoint_id] = self._free.pop()
        self._live = self._live & ~bit | fresh
        self._used &= ~bit
        self._names.clear()

    def _add(self, blocks: Sequence[int], bit: int) -> None:
        """Notes the endpoint of this bit at the blocks that it has not been sent yet: all from some point on."""
        self._used |= bit
        masks, live = self._masks, self._live
        get = masks.get
        for block in reversed(blocks):
            mask = get(block, 0)
            if mask & bit:
                return
            masks[block] = mask & live | bit

    def _sweep(self) -> None:
        """Makes the bits that nobody has any more free again."""
        live = self._live
        for block, mask in self._masks.items():
            if mask & ~live:
                self._masks[block] = mask & live
        self._free = [bit for place in reversed(range(self._width)) if not (bit := 1 << place) & live]

    def _named(self, mask: int) -> tuple[str, ...]:
        names = self._names.get(mask)
        if names is None:
            if len(self._names) >= _NAMES:
                self._names.clear()
            names = self._names[mask] = tuple([name for name, bit in self._bits.items() if bit & mask])
        return names
