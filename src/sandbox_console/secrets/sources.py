"""Where a secret comes from, and reading it: once, as late as can be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_console.errors import SecretError
from sandbox_console.model.secret import Inject, ResolvedSecret

MIN_BYTES = 8
"""Shorter values are refused: hiding them in output would hide ordinary words as well."""

_MAX_BYTES = 64 * 1024
_KNOWN = "known sources are env:NAME and file:PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """A ``[secrets.NAME]`` table: a reference to a value, never the value."""

    source: str
    inject: Inject = "env"
    hosts: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The word before the colon: env, file."""
        return self.source.partition(":")[0]


def problem(source: SecretSource) -> str:
    """What is wrong with a source as written, without reading it; empty when nothing is."""
    kind, colon, rest = source.source.partition(":")
    if not colon or not rest:
        return f"{source.source!r} is not a source; {_KNOWN}"
    return "" if kind in _READERS else f"source kind {kind!r} is not supported; {_KNOWN}"


def resolve(names: Iterable[str], sources: Mapping[str, SecretSource]) -> list[ResolvedSecret]:
    """Read the values. Raises SecretError that names the secret and the cause, never a value."""
    return [_resolve(name, sources) for name in names]


def _resolve(name: str, sources: Mapping[str, SecretSource]) -> ResolvedSecret:
    source = sources.get(name)
    if source is None:
        raise SecretError(f"secret {name!r} is not defined", hint=f"add a [secrets.{name}] table to the config")
    if text := problem(source):
        raise SecretError(f"secret {name!r}: {text}")
    kind, _, rest = source.source.partition(":")
    value = _READERS[kind](name, rest)
    if len(value.encode()) < MIN_BYTES:
        raise SecretError(
            f"secret {name!r} has fewer than {MIN_BYTES} bytes, too few to be hidden in output",
            hint="use a longer value, or plain env for what is not secret",
        )
    if "\0" in value:
        raise SecretError(f"secret {name!r} has a NUL byte, which no environment can carry")
    return ResolvedSecret(name, value, source.inject, source.hosts)


def _from_env(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise SecretError(f"secret {name!r}: the variable {variable} is not set", hint=f"export {variable}")
    return value


def _from_file(name: str, path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"secret {name!r}: {path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise SecretError(f"secret {name!r}: {path} is larger than {_MAX_BYTES} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretError(f"secret {name!r}: {path} is not UTF-8 text") from None


_READERS: dict[str, Callable[[str, str], str]] = {"env": _from_env, "file": _from_file}
