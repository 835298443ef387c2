"""What the process does for the garbage collector."""

from __future__ import annotations

import gc


def freeze_start_up_objects() -> None:
    """Takes what was made at start-up out of every later collection, and makes collections rarer.

    A request leaves few cycles behind; walking the modules' objects for them would hold all streams up.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
