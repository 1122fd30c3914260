"""Reads secrets from this machine: environment variables and files."""

from __future__ import annotations

import asyncio
import os
import re
import stat

from sandbox_console.errors import Conflict, SecretError
from sandbox_console.hostfs.files import open_regular
from sandbox_console.hostfs.guest_writable import AROUND
from sandbox_console.hostfs.walk import find

MAX_BYTES = 64 * 1024
"""The largest size of a value."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/)")


async def from_env(name: str, variable: str, timeout_s: float) -> str:  # noqa: ARG001 - it takes no time
    """The value of an environment variable. Raises SecretError."""
    value = os.environ.get(variable)
    if value is None:
        raise SecretError(f"the variable {variable} is not set", hint=f"export {variable}")
    return value


async def from_file(name: str, path: str, timeout_s: float) -> str:  # noqa: ARG001 - a file has no prompt
    """A file's text without its last newline. ``~`` and a variable before the first ``/`` are expanded.

    ``file:$CREDENTIALS_DIRECTORY/NAME`` thus reads a credential that systemd passed to this service.
    """
    return text_of(await asyncio.to_thread(_read, path), path)


def text_of(data: bytes, source: str) -> str:
    """Bytes as a value: UTF-8, without one newline at the end. Raises SecretError."""
    if len(data) > MAX_BYTES:
        raise SecretError(f"{source} gives more than {MAX_BYTES} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretError(f"{source} is not UTF-8 text") from None


def real_path(path: str) -> str:
    """The path of a ``file:`` reference. Raises SecretError if a variable in it is not set."""
    match = _VARIABLE.match(path)
    if match is None:
        return os.path.expanduser(path)  # noqa: PTH111 - a path that has no home stays as it is
    variable = match[1] or match[2]
    folder = os.environ.get(variable)
    if not folder:
        systemd = "; systemd sets it for services with LoadCredential=" if variable == "CREDENTIALS_DIRECTORY" else ""
        raise SecretError(f"{path}: the variable {variable} is not set{systemd}")
    return folder + path[match.end() :]


def exposure(path: str) -> str:
    """Who else may read a file, in words; empty if nobody may or if that cannot be determined."""
    try:
        mode = stat.S_IMODE(os.stat(real_path(path)).st_mode)  # noqa: PTH116 - the path is text
    except (OSError, SecretError):
        return ""
    return f"others on this machine may read the file (mode {mode:04o}); chmod 600" if mode & 0o077 else ""


def _read(path: str) -> bytes:
    real = real_path(path)
    try:
        with find(real, AROUND.get()) as found:
            if found.what is not None and not stat.S_ISREG(found.what.st_mode):
                raise SecretError(f"{path} is not a file", hint="use cmd: for the output of a program")
            fd = open_regular(found.folder, found.name)
    except Conflict as error:
        raise SecretError(error.message, hint=error.hint) from None
    except (OSError, ValueError) as error:
        raise SecretError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        with os.fdopen(fd, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from None
