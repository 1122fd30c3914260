"""The table of the backend: the runtimes that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common.options import check_known
from sandbox_console.errors import ConfigError

WITHIN = "SANDBOX_CONSOLE_WITHIN_A3S"
"""A variable of the processes that the backend starts. A console among them, as the shim is one, does not ask again."""
_OPTIONS = ("runtimes",)
_EXAMPLE = '[backends.a3s.runtimes.local] binary = "/usr/local/bin/a3s-box"'


class Runtime(Struct, frozen=True, kw_only=True):
    """One runtime. ``binary`` is its program, by default A3S_BOX_BINARY or ``a3s-box``; ``home`` its A3S_HOME.

    ``lifetime_s`` is the time that each new sandbox is created with, in seconds.
    """

    binary: str = ""
    home: str = ""
    isolation: Literal["microvm", "sandbox"] = "microvm"
    lifetime_s: Annotated[int, Meta(ge=1, le=365 * 86_400)] = 3600


def runtimes(backend: str, settings: BackendSettings) -> Mapping[str, Runtime]:
    """The runtimes by name. Raises ConfigError, which names the runtime and the option."""
    check_known(backend, settings.options, _OPTIONS)
    table = settings.options.get("runtimes", {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{backend}: runtimes is a table", hint=_EXAMPLE)
    return {str(name): _runtime(f"{backend}.runtimes.{name}", one) for name, one in table.items()}


def _runtime(label: str, table: object) -> Runtime:
    if isinstance(table, Mapping):
        check_known(label, table, Runtime.__struct_fields__)
    try:
        return msgspec.convert(table, Runtime)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{label}: {error}", hint=_EXAMPLE) from None
