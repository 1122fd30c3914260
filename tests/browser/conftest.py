"""A certificate for the tests of TLS."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for this machine, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl on PATH")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=console", "-addext", "subjectAltName=IP:127.0.0.1,DNS:console.localhost"]
    subprocess.run(["openssl", *words, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key
