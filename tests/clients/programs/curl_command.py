"""curl, with the options that the README shows."""

from __future__ import annotations

import json
import subprocess
from functools import partial

from tests.clients.programs.calls import BASE_URL, Found, tell
from tests.clients.programs.plain import CALLS, read, request


def curl(call: str, model: str) -> Found:
    path, body = request(call, model)
    printed = subprocess.run(
        ("curl", "-sSN", BASE_URL + path, "-H", "content-type: application/json", "-d", "@-", "-w", r"\n%{http_code}"),
        input=json.dumps(body),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answer, _, status = printed.rpartition("\n")
    return read(call, int(status), answer)


if __name__ == "__main__":
    tell({call: partial(curl, call) for call in CALLS})
