"""Refuses an OpenSSL configuration that a sandbox can write, before OpenSSL reads it.

OpenSSL reads what these variables name when Python's ``hashlib`` or ``ssl`` is first imported, and loads the libraries
that are named there: a guest that can write the file would run code as the user. The check needs both modules, so a
child process makes it, without the variables. It costs nothing where none of them is set.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing for it costs 8 ms of each command
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox_console.errors import ConsoleError

VARIABLES = ("OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES")
_MOST = 64 * 1024


def problem(words: Sequence[str]) -> ConsoleError | None:
    """The error for a variable that leads where a sandbox can write. ``words`` is the call.

    The variables are then gone. None if there is none, if OpenSSL has been loaded already, or where nobody can tell:
    the console reports that when it opens its state.
    """
    named = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    if not named or "_hashlib" in sys.modules or "_ssl" in sys.modules:
        return None
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.close(reader)
        os.write(writer, _told(named, words).encode("utf-8", "surrogateescape")[:_MOST])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123 - a descriptor
        message, _, hint = pipe.read(_MOST).decode("utf-8", "surrogateescape").partition("\0")
    os.waitpid(child, 0)
    if not message:
        return None
    for name in named:
        del os.environ[name]
    from sandbox_console.errors import ConfigError

    return ConfigError(message, hint=hint)


def _told(named: Mapping[str, str], words: Sequence[str]) -> str:
    """The message and the hint of the error, with a NUL between them; empty if there is none."""
    for name in named:
        del os.environ[name]
    try:
        from pathlib import Path

        from sandbox_console.errors import ConfigError
        from sandbox_console.service.bootstrap import refuse_read

        config = _config(words)
        files = [(f"{name}, which libraries of the console use", Path(text).absolute()) for name, text in named.items()]
        try:
            refuse_read(files, Path(config) if config else None)
        except ConfigError as error:
            return f"{error}\0{error.hint or ''}"
    except Exception:  # noqa: BLE001 - the console itself reports what is wrong with its state
        return ""
    return ""


def _config(words: Sequence[str]) -> str | None:
    """The file that ``--config`` names."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if word == "--config":
            return value
        if word.startswith("--config="):
            return word.partition("=")[2]
    return None
