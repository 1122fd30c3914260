"""Who may read a console's memory, and whether it leaves a core: not while it holds a value."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from sandbox_console.secrets import keyrings

_LOOK = """
import asyncio, ctypes, resource
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service.gate.vault import Vault
vault = Vault({"TOKEN": SecretSource(source="env:HELD")})
def look():
    print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), *resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_CORE, (MOST, MOST))
asyncio.run(vault.resolve([]))
look()
asyncio.run(vault.learn(["TOKEN", "NONE"]))
look()
"""


def _most() -> int:
    """Bytes of a core that this process may still ask for: a test before may have held a value in it."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)


def _ran(script: str) -> str:
    script = script.replace("MOST", str(_most()))
    environment = {**os.environ, "HELD": "hunter2-of-the-test"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_console_that_holds_a_value_keeps_its_memory_to_itself() -> None:
    assert _ran(_LOOK) == f"1 {_most()} {_most()}\n0 0 0\n"


def test_a_value_that_cannot_be_read_finds_the_memory_closed_already() -> None:
    script = _LOOK.replace("env:HELD", "file:/nosuch/file/of/the/test")
    assert _ran(script) == f"1 {_most()} {_most()}\n0 0 0\n"


def test_the_process_that_asks_the_keyring_keeps_its_memory_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = "import sys, types\nring = types.ModuleType('keyring'); ring.errors = types.ModuleType('keyring.errors')\n"
    fake += "ring.errors.NoKeyringError = ring.errors.KeyringLocked = OSError\n"
    fake += "ring.get_password = lambda *_: str(__import__('ctypes').CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    fake += "sys.modules |= {'keyring': ring, 'keyring.errors': ring.errors}; sys.argv += ['service', 'user']\n"
    assert _ran(fake + keyrings._CHILD) == "0"
