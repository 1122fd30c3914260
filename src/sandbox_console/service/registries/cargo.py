"""Where cargo fetches crates from, as far as its settings say. Its own default is inside the program."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox_console.service.registries.machine import Learning, Machine, Site

_VARIABLE = re.compile(r"CARGO_REGISTRIES_.+_INDEX\Z|CARGO_SOURCE_.+_REGISTRY\Z")


def crates_index(machine: Machine) -> Site:
    """The hosts of the registries that cargo was told of."""
    learning = Learning(machine)
    home = Path(machine.env.get("CARGO_HOME") or machine.home / ".cargo")
    config = next((one for one in (home / "config.toml", home / "config") if one.exists()), home / "config.toml")
    for url in _urls(_table(learning, config)):
        _add(learning, url, str(config))
    for name, value in machine.env.items():
        if _VARIABLE.match(name):
            _add(learning, value, name)
    if learning.hosts:
        learning.note("an index may name another host for the crates themselves")
    return learning.site(
        f"neither {config} nor a variable CARGO_REGISTRIES_... names a registry, and cargo's own is inside the program"
    )


def _table(learning: Learning, path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(learning.read(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        learning.note(f"{path} is not read: it is no TOML")
        return {}


def _urls(config: Mapping[str, Any]) -> Iterator[str]:
    """The addresses of the sources in use, and of named registries."""
    for table, key in (("source", "registry"), ("registries", "index")):
        tables = config.get(table)
        for one in tables.values() if isinstance(tables, dict) else ():
            if isinstance(one, dict) and isinstance(url := one.get(key), str):
                yield url


def _add(learning: Learning, url: str, origin: str) -> None:
    bare = url.removeprefix("sparse+").removeprefix("registry+")
    if not bare.startswith("file:"):
        learning.add(bare, origin)
