"""``nginx/weir.conf`` is read by a real nginx."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.fakes.scripted import unused_port
from tests.nginx.real_nginx import NGINX, needs_nginx, write_configuration

pytestmark = needs_nginx


def test_nginx_takes_the_file_without_a_warning(tmp_path: Path) -> None:
    assert NGINX is not None
    top = write_configuration(tmp_path, unused_port(), unused_port())
    tried = subprocess.run(
        [NGINX, "-t", "-p", str(tmp_path), "-c", str(top)], capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stderr
    assert "test is successful" in tried.stderr
    assert not re.search(r"\[(warn|error|emerg)\]", tried.stderr), tried.stderr
