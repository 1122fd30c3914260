"""Where npm fetches JavaScript packages from: its variables and npmrc files, else the default of the installed npm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox_console.service.registries.machine import Learning, Machine, Site

_VARIABLE = re.compile(r"\$\{([^}?]+)\??\}")
_DEFAULT = re.compile(r"""['"]registry['"],\s*\{\s*default:\s*['"`](https?://[^'"`]+)""")
_OLD_DEFAULT = re.compile(r"""\bregistry:\s*['"`](https?://[^'"`]+)""")
_DEFINITIONS = (
    ("node_modules/@npmcli/config/lib/definitions/definitions.js", _DEFAULT),
    ("../@npmcli/config/lib/definitions/definitions.js", _DEFAULT),
    ("lib/utils/config/definitions.js", _DEFAULT),
    ("lib/config/defaults.js", _OLD_DEFAULT),
)
"""Where npm 9 and later, Debian's, npm 7 and 8, and npm 6 have their defaults."""


def npm_registry(machine: Machine) -> Site:
    """The hosts of npm's registry, and of those that only some scopes use."""
    learning = Learning(machine)
    settings = _settings(learning)
    for key, (url, origin) in settings.items():
        if key == "registry" or (key.startswith("@") and key.endswith(":registry")):
            learning.add(url, origin)
    if "registry" not in settings:
        _add_default(learning)
    return learning.site("no setting of npm names a registry, and no npm is installed here")


def _settings(learning: Learning) -> Mapping[str, tuple[str, str]]:
    """The values of npm's settings, each with what it was read from. The strongest source is read last."""
    machine = learning.machine
    named = {key: (value, name) for name, value in machine.env.items() if (key := _key(name)) and value}
    found = dict[str, tuple[str, str]]()
    for package in _npm(machine):
        found |= _file(learning, package / "npmrc")
    for path in _shared(machine, {**found, **named}):
        found |= _file(learning, path)
    user = named.get("userconfig", found.get("userconfig", ("", "")))[0]
    return found | _file(learning, Path(user) if user else machine.home / ".npmrc") | named


def _key(variable: str) -> str:
    """The setting that an environment variable is, in the case of npm's own files."""
    name = variable.lower()
    return name.removeprefix("npm_config_").replace("_", "-") if name.startswith("npm_config_") else ""


def _shared(machine: Machine, named: Mapping[str, tuple[str, str]]) -> Iterator[Path]:
    """The npmrc of all users: the named one, or that of the prefix that npm is installed in."""
    if "globalconfig" in named:
        yield Path(named["globalconfig"][0])
        return
    yield machine.etc / "npmrc"
    prefixes = [named["prefix"][0]] if "prefix" in named else [str(one.parents[1]) for one in machine.installed("node")]
    yield from (Path(prefix, "etc", "npmrc") for prefix in prefixes[:1])


def _file(learning: Learning, path: Path) -> dict[str, tuple[str, str]]:
    found = dict[str, tuple[str, str]]()
    for line in learning.read(path).splitlines():
        key, sign, value = line.strip().partition("=")
        if sign and not key.startswith((";", "#", "[")):
            value = _VARIABLE.sub(lambda one: learning.machine.env.get(one[1], ""), value.strip().strip("'\""))
            found[key.strip().strip("'\"")] = value, str(path)
    return found


def _add_default(learning: Learning) -> None:
    for package in _npm(learning.machine):
        for name, pattern in _DEFINITIONS:
            path = package / name
            if found := pattern.search(learning.read(path)):
                learning.add(found[1], str(path.resolve()))
                return


def _npm(machine: Machine) -> Iterator[Path]:
    """The folder of the npm that is used: of the one on PATH, else of one at a usual place."""
    named = (parent for path in machine.installed("npm") for parent in path.parents if parent.name == "npm")
    usual = (
        prefix / place
        for prefix in machine.programs
        for place in ("share/nodejs/npm", "lib/node_modules/npm", "share/npm")
    )
    for folder in (*named, *usual):
        if (folder / "package.json").is_file():
            yield folder
            return
