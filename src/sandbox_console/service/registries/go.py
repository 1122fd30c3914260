"""Where go fetches modules from: GOPROXY in the environment or in the files that ``go env`` reads, which is not run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox_console.service.registries.machine import Learning, Machine, Site

_NAMES = ("GOPROXY", "GOSUMDB")


def go_proxy(machine: Machine) -> Site:
    """The hosts of go's module proxies, and of the database with the modules' checksums."""
    learning = Learning(machine)
    settings = _settings(learning)
    for one in re.split("[,|]", settings.get("GOPROXY", ("", ""))[0]):
        origin = settings["GOPROXY"][1] if one else ""
        if one.strip() == "direct":
            learning.note("modules that a proxy does not have come from hosts of their own")
        elif one.strip() not in ("", "off"):
            learning.add(one, origin)
    if learning.hosts and (database := _database(*settings.get("GOSUMDB", ("", "")))):
        learning.add(*database)
    return learning.site("GOPROXY is set neither in the environment nor in a file that go reads")


def _database(value: str, origin: str) -> tuple[str, str] | None:
    """The URL of a checksum database: ``NAME``, ``NAME+KEY``, or one of these and a URL."""
    name, _, url = value.strip().partition(" ")
    return (url or f"https://{name.partition('+')[0]}", origin) if name and name != "off" else None


def _settings(learning: Learning) -> Mapping[str, tuple[str, str]]:
    """The values, each with what it was read from. The strongest source is read last."""
    found = dict[str, tuple[str, str]]()
    for path in _files(learning.machine):
        for line in learning.read(path).splitlines():
            name, sign, value = line.strip().partition("=")
            if sign and name in _NAMES and value:
                found[name] = value, str(path)
    env = learning.machine.env
    return found | {name: (env[name], name) for name in _NAMES if env.get(name)}


def _files(machine: Machine) -> Iterator[Path]:
    """The defaults of the installed go, since 1.21, then the user's file."""
    yield from list(_installed(machine))[:1]
    named = machine.env.get("GOENV", "")
    if named != "off":
        yield Path(named) if named else machine.config_home() / "go" / "env"


def _installed(machine: Machine) -> Iterator[Path]:
    root = machine.env.get("GOROOT", "")
    roots = [Path(root)] if root else [path.parents[1] for path in machine.installed("go")]
    roots += [prefix / place for prefix in machine.programs for place in ("go", "lib/go", "share/go")]
    yield from (path for folder in roots if (path := folder / "go.env").exists())
