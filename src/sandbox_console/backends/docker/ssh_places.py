"""Finds the files that a login over ssh reads, so that none of them is used if a guest could have written it.

A configuration names programs (ProxyCommand, Match exec), known_hosts says which server is the right one, and a key or
an agent can be somebody else's.
"""

from __future__ import annotations

import getpass
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from asyncssh.config import SSHClientConfig

_LISTS = ("IdentityFile", "CertificateFile", "UserKnownHostsFile", "GlobalKnownHostsFile")
_ONES = ("IdentityAgent", "PKCS11Provider")
_USUAL = ("known_hosts", "known_hosts2", "ca-bundle.crt", "crt")
_LONGEST = 1 << 20
_MOST_HOSTS = 20


def places(host: str, user: str | None = None, port: int | None = None) -> Iterator[Path]:
    """Yield each file that a login reads or runs. Each is yielded before it is read here to find the next ones.

    Raises asyncssh.ConfigParseError, OSError.
    """
    folder = Path("~/.ssh").expanduser()
    yield from _configurations(folder / "config", folder, set())
    yield from (folder / name for name in _USUAL)
    yield from sorted(folder.glob("id_*"))
    yield from _paths(os.environ.get("SSH_AUTH_SOCK", ""))
    hosts = [(host, user, port)]
    for at, one in enumerate(hosts):
        config = _config(folder / "config", *one)
        for name in _LISTS:
            for value in cast("list[str]", config.get(name) or ()):
                yield from _paths(str(value))
        for name in _ONES:
            yield from _paths(str(config.get(name) or ""))
        with suppress(ValueError):  # a quote that is not closed: the shell would not run it either
            yield from _paths(next(iter(shlex.split(str(config.get("ProxyCommand") or ""))), ""))
        if at < _MOST_HOSTS:
            hosts += _jumps(str(config.get("ProxyJump") or ""))


def _paths(text: str) -> Iterator[Path]:
    """A value as a path, if it is one: ``none`` and names of programs on PATH are not."""
    if "/" in text:
        with suppress(RuntimeError):  # a home of nobody
            yield Path(text).expanduser()


def _config(path: Path, host: str, user: str | None, port: int | None) -> SSHClientConfig:
    """The configuration for one host, as asyncssh reads it; an empty tuple stands for what is not given."""
    found = SSHClientConfig.load(
        None, [path] if os.access(path, os.R_OK) else [], False, False, False, getpass.getuser(), user or (), host,
        port or (),
    )  # fmt: skip
    assert isinstance(found, SSHClientConfig)  # noqa: S101 - load is declared for the base class
    return found


def _configurations(path: Path, folder: Path, seen: set[Path]) -> Iterator[Path]:
    """A configuration and those that it includes, in whatever block."""
    if path in seen:
        return
    seen.add(path)
    yield path
    for pattern in _included(path):
        with suppress(RuntimeError, ValueError, NotImplementedError, IndexError):
            whole = folder / Path(pattern).expanduser()
            for one in sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))):
                yield from _configurations(one, folder, seen)


def _included(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            lines = file.read(_LONGEST).decode(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError):
            words = shlex.split(line.strip().replace("=", " ", 1), comments=True)
            if words and words[0].lower() == "include":
                yield from words[1:]


def _jumps(text: str) -> Iterator[tuple[str, str | None, int | None]]:
    """The hosts of ``[USER@]HOST[:PORT],...``."""
    for one in text.split(","):
        user, _, rest = one.rpartition("@")
        host, _, port = rest.rpartition(":") if not rest.endswith("]") else (rest, "", "")
        if not host:
            host, port = rest, ""
        if host and host != "none":
            yield host.strip("[]"), user or None, int(port) if port.isdecimal() else None
