"""Changes the configuration file. Comments and order stay, and the file is always the old or the new one, whole."""

from __future__ import annotations

import errno
import os
import secrets as random
import stat
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.errors import ConfigError, Conflict, NotFound
from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.service.config import LONGEST, checked
from sandbox_console.service.config_lines import without_table

_TRIES = 3
_LEFT_S = 3600
"""After this time, in seconds, a part of a file is assumed to be left over from a killed console."""


_Write = Callable[[str], Iterator[str]]
"""Yields new texts for an old one, the best first. The first that means what is expected is taken."""

_Expect = Callable[[dict[str, Any]], None]
"""Makes the change to the data of the file."""


class _Before(Struct, frozen=True):
    """The file before a change: its text, and its stamp, mode and owner; no stamp if there is no file."""

    text: str = ""
    stamp: tuple[int, ...] = ()
    owner: tuple[int, int] | None = None


def add_table(path: Path, section: str, name: str, values: dict[str, Any]) -> None:
    """Add ``[section.name]``. Raises Conflict if there is one, and ConfigError if the file cannot be changed."""

    def change(text: str) -> Iterator[str]:
        import tomlkit
        from tomlkit.items import InlineTable

        document: Any = tomlkit.parse(text)
        tables = document.setdefault(section, tomlkit.table(is_super_table=True))
        table = tomlkit.inline_table() if isinstance(tables, InlineTable) else tomlkit.table()
        table.update(values)
        tables[name] = table
        yield tomlkit.dumps(document)

    def expected(data: dict[str, Any]) -> None:
        tables = data.setdefault(section, {})
        if name in tables:
            raise Conflict(f"{section}.{name} is in {path} already", hint="choose another name, or remove it first")
        tables[name] = values

    _change(path, change, expected)


def remove_table(path: Path, section: str, name: str) -> None:
    """Remove ``[section.name]``. Raises NotFound if there is none, and ConfigError if the file cannot be changed."""

    def change(text: str) -> Iterator[str]:
        import tomlkit

        yield without_table(text, (section, name))  # tomlkit also removes the comments above the next table
        document: Any = tomlkit.parse(text)
        del document[section][name]
        yield tomlkit.dumps(document)

    def expected(data: dict[str, Any]) -> None:
        if data.get(section, {}).pop(name, None) is None:
            raise NotFound(f"{section}.{name} is not in {path}")

    _change(path, change, expected)


def _change(path: Path, change: _Write, expected: _Expect) -> None:
    """Read, change, check and replace the file. Another console waits; an editor's write in between is not lost."""
    if reason := another_hand(path):
        raise ConfigError(
            f"{path} is not changed: {reason}", hint="it and its folders must be yours: chown, chmod go-w"
        )
    with _locked(path) as folder:
        for _ in range(_TRIES):
            before = _read(folder, path)
            text = _changed(path, before.text, change, expected)
            checked(path, text)
            if _replace(folder, path, before, text):
                return
    raise Conflict(f"{path} is being changed by another program", hint="try again when it is done")


def _changed(path: Path, text: str, change: _Write, expected: _Expect) -> str:
    """Return the new text. Raises ConfigError if it cannot be made without changing more than that."""
    checked(path, text)  # a broken file is reported with its line, and not changed
    wanted = tomllib.loads(text)
    expected(wanted)
    with suppress(ValueError, AttributeError, TypeError):  # tomlkit's and tomllib's errors are ValueErrors
        for made in change(text):
            if _meaning(made) == _pruned(wanted):
                return made
    raise ConfigError(f"{path} is written in a form that cannot be changed here", hint="change it in an editor")


def _meaning(text: str) -> dict[str, Any] | None:
    try:
        return _pruned(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return None


def _pruned(data: dict[str, Any]) -> dict[str, Any]:
    """Remove empty tables: an empty ``[secrets]``, which the last removal may leave, means the same as none."""
    return {key: value for key, value in data.items() if value != {}}


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Keep other consoles out, by a lock on the folder. Yields the open folder. Raises ConfigError, Conflict."""
    try:
        for above in (*reversed(path.parent.parents), path.parent):  # with a mode of our own, whatever the umask
            if not above.exists():
                above.mkdir(mode=0o700, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        file_lock.take(folder, path.parent)
        yield folder
    finally:
        os.close(folder)


def _read(folder: int, path: Path) -> _Before:
    try:
        fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return _Before()
    except OSError as error:
        if error.errno == errno.ELOOP:
            hint = "change the file that it leads to, or name that one with --config"
            raise ConfigError(f"{path} is a link, and is not written through", hint=hint) from None
        raise _unwritable(path, error) from None
    st = os.fstat(fd)
    if not stat.S_ISREG(st.st_mode):
        os.close(fd)
        raise ConfigError(f"{path} is not a file", hint=f"see: ls -ld {path}")
    with os.fdopen(fd, "rb") as file:
        data = file.read(LONGEST + 1)
    try:
        return _Before(data.decode(), _stamp(st), (st.st_uid, st.st_gid))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be TOML, in UTF-8") from None


def _replace(folder: int, path: Path, before: _Before, text: str) -> bool:
    """Put a new file in place of the one that was read; False if another program changed it meanwhile."""
    _sweep(folder, path)
    part = f".{path.name}.{random.token_hex(6)}.part"
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            if before.owner is not None and os.geteuid() == 0:
                os.fchown(fd, *before.owner)  # with sudo, it stays the user's
            file.write(text.encode())
            file.flush()
            os.fsync(fd)
        if _now(folder, path.name) != before.stamp:
            return False
        os.rename(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
        return True
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)


def _sweep(folder: int, path: Path) -> None:
    """Remove what killed consoles left. It holds no value of a secret."""
    for name in os.listdir(folder):
        if name.startswith(f".{path.name}.") and name.endswith(".part"):
            with suppress(OSError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < time.time() - _LEFT_S:
                    os.unlink(name, dir_fd=folder)


def _now(folder: int, name: str) -> tuple[int, ...]:
    try:
        return _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return ()


def _stamp(st: os.stat_result) -> tuple[int, ...]:
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def _unwritable(path: Path, error: OSError) -> ConfigError:
    hint = f"see its owner, and the disk: ls -ld {path}; df"
    return ConfigError(f"{path} cannot be written: {error.strerror}; it is as it was", hint=hint)
