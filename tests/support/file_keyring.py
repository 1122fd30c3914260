"""A backend of the package ``keyring`` that keeps passwords in a file, found as that package finds one: by its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

_BACKEND = """
import json, pathlib, keyring.backend, keyring.errors
class Ring(keyring.backend.KeyringBackend):
    priority = 1
    path = pathlib.Path({path!r})
    def set_password(self, service, username, password):
        if service == 'broken': raise RuntimeError(password)
        kept = json.loads(self.path.read_text()) if self.path.exists() else {{}}
        if service != 'forgets': self.path.write_text(json.dumps(kept | {{f'{{service}} {{username}}': password}}))
    def get_password(self, service, username):
        if service == 'locked': raise keyring.errors.KeyringLocked('it')
        if service == 'broken': raise RuntimeError({broken!r})
        kept = json.loads(self.path.read_text()) if self.path.exists() else {{}}
        return kept.get(f'{{service}} {{username}}')
"""


def file_keyring(folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str = "") -> Path:
    """Let ``keyring`` keep passwords in a file below ``folder``, and return its path.

    The services ``locked``, ``broken`` (whose error has the text ``broken`` in it) and ``forgets`` fail.
    """
    kept, code, config = folder / "ring.json", folder / "code", folder / "xdg" / "python_keyring"
    code.mkdir()
    (code / "file_ring.py").write_text(_BACKEND.format(path=str(kept), broken=broken))
    config.mkdir(parents=True)
    (config / "keyringrc.cfg").write_text(f"[backend]\ndefault-keyring=file_ring.Ring\nkeyring-path={code}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
    return kept
