"""A certificate for 127.0.0.1 that nobody vouches for: what a private CA's looks like to who does not know it."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def certified(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Returns a server's context, and the file of the certificate that a client has to trust."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=weir"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:TRUE"]
    subprocess.run(
        [*command.split(), *names, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, certificate
