"""``weir engine``, ended with the process that started it."""

from __future__ import annotations

import sys

from ..__main__ import main
from .tether import tie_to_starter

if __name__ == "__main__":
    tie_to_starter()
    sys.exit(main(["engine", *sys.argv[1:]]))
