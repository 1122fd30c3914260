"""Reads and stores secrets in the user's keyring, with the package ``keyring`` in a separate process.

A locked keyring may prompt and wait for ever, and its libraries use D-Bus. A child process can be given a time limit.
"""

from __future__ import annotations

import sys

from sandbox_console.errors import SecretError
from sandbox_console.secrets.program import complaint, run

ALTERNATIVES = (
    "without a desktop use file:$CREDENTIALS_DIRECTORY/NAME (systemd), file:PATH with mode 0600, env:VARIABLE, "
    'or cmd:["pass", "show", "NAME"]'
)
_NO_KEYRING, _NO_ENTRY, _LOCKED = 70, 71, 72
# The child prints words of its own on stdout and never a traceback, as a keyring's errors may contain the request.
_CHILD = f"""
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody reads the value out of its memory
import keyring, keyring.errors
try:
    if sys.argv[3:] == ["store"]:
        keyring.set_password(sys.argv[1], sys.argv[2], sys.stdin.buffer.read().decode())
    value = keyring.get_password(sys.argv[1], sys.argv[2])
except keyring.errors.NoKeyringError:
    os._exit({_NO_KEYRING})
except keyring.errors.KeyringLocked:
    os._exit({_LOCKED})
except Exception as error:
    sys.stderr.write(type(error).__name__)
    sys.stderr.flush()
    os._exit(1)
if value is None:
    os._exit({_NO_ENTRY})
sys.stdout.buffer.write(value.encode())
"""


def problem(text: str) -> str:
    """What is wrong with a ``keyring:`` reference; empty when nothing is."""
    service, slash, user = text.rpartition("/")
    return "" if slash and service and user else "keyring: needs SERVICE/USER"


async def read(name: str, text: str, timeout_s: float) -> str:  # noqa: ARG001 - as all readers
    """The password of SERVICE and USER; the last ``/`` separates them. Raises SecretError."""
    return await _asked(text, timeout_s)


async def store(text: str, value: str, timeout_s: float) -> None:
    """Store a password for SERVICE and USER, in place of an older one. Raises SecretError, without the value."""
    if await _asked(text, timeout_s, value) != value:
        raise SecretError("the keyring did not keep the value", hint=ALTERNATIVES)


async def _asked(text: str, timeout_s: float, value: str | None = None) -> str:
    service, _, user = text.rpartition("/")
    words = [sys.executable, "-I", "-c", _CHILD, service, user, *(["store"] if value is not None else [])]
    printed = await run(words, "the keyring", timeout_s, given=(value or "").encode())
    match printed.code:
        case 0:
            return printed.out.decode()
        case _ if printed.code == _NO_KEYRING:
            raise SecretError("there is no keyring here", hint=ALTERNATIVES)
        case _ if printed.code == _LOCKED:
            raise SecretError("the keyring is locked", hint=f"unlock it; or {ALTERNATIVES}")
        case _ if printed.code == _NO_ENTRY:
            hint = f"keyring set {service} {user}"
            raise SecretError(f"the keyring has no entry for {service}/{user}", hint=hint)
        case _:
            raise SecretError(f"the keyring failed{complaint(printed)}", hint=ALTERNATIVES)
