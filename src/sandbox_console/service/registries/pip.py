"""Where pip fetches Python packages from: its variables and configuration files, else what pip itself has inside."""

from __future__ import annotations

import ast
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from configparser import Error, RawConfigParser
from pathlib import Path

from sandbox_console.errors import Conflict
from sandbox_console.service.registries.machine import Learning, Machine, Site, pattern_of

_CONSTANTS = Path("_internal", "models", "index.py")
"""The module of pip with the addresses of its usual index and of that index's files."""
_MOST_WHEEL = 16 << 20


def python_index(machine: Machine) -> Site:
    """The hosts of pip's indexes, and of the usual index's files."""
    learning = Learning(machine)
    settings = _settings(learning)
    index, usual, files = "", "", ""
    closed, _ = settings.get("no-index", ("", ""))
    constants = _constants(learning)
    if constants is not None:
        usual, files, place = constants
    if closed.lower() not in ("1", "true", "yes", "on"):
        index, origin = settings.get("index-url", ("", ""))
        if index:
            index = learning.add(index, origin)
        elif constants is not None:
            index = learning.add(usual, place)
        _add_all(learning, *settings.get("extra-index-url", ("", "")))
    _add_all(learning, *settings.get("find-links", ("", "")))
    if constants is not None and index and index == _pattern(usual):
        learning.add(f"https://{files}", place)
    return learning.site("no setting of pip names an index, and no pip is installed here")


def _add_all(learning: Learning, words: str, origin: str) -> None:
    for word in words.split():
        if "://" in word and not word.startswith("file:"):
            learning.add(word, origin)


def _pattern(url: str) -> str:
    try:
        return pattern_of(url)
    except ValueError:
        return ""


def _settings(learning: Learning) -> Mapping[str, tuple[str, str]]:
    """The values of pip's settings, each with what it was read from. The strongest source is read last."""
    machine, found = learning.machine, dict[str, tuple[str, str]]()
    for path in _files(machine):
        found |= _file(learning, path)
    for name, value in machine.env.items():
        if name.startswith("PIP_") and value:
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value, name
    return found


def _files(machine: Machine) -> Iterator[Path]:
    """The configuration files, the weakest first (pip/_internal/configuration.py)."""
    named = machine.env.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    shared = machine.env.get("XDG_CONFIG_DIRS") or str(machine.etc / "xdg")
    yield from (Path(one, "pip", "pip.conf") for one in shared.split(":") if one)
    yield machine.etc / "pip.conf"
    if not (named and Path(named).exists()):
        yield machine.home / ".pip" / "pip.conf"
        yield machine.config_home() / "pip" / "pip.conf"
    if environment := machine.env.get("VIRTUAL_ENV"):
        yield Path(environment, "pip.conf")
    if named:
        yield Path(named)


def _file(learning: Learning, path: Path) -> Mapping[str, tuple[str, str]]:
    parser = RawConfigParser()
    try:
        parser.read_string(learning.read(path))
    except Error:
        learning.note(f"{path} is not read: it is not in the format of pip.conf")
        return {}
    return {
        key.lower().replace("_", "-"): (value, str(path))
        for section in ("global", "install")
        if parser.has_section(section)
        for key, value in parser.items(section)
    }


# What pip has inside


def _constants(learning: Learning) -> tuple[str, str, str] | None:
    """The URL of the usual index, the host of its files, and the file that says so; None without a pip."""
    for path, source in _sources(learning.machine):
        if found := _declared(source):
            return *found, str(path)
    return None


def _sources(machine: Machine) -> Iterator[tuple[Path, str]]:
    """The text of that module in each pip of this machine, which is read and not imported."""
    for folder in _packages(machine):
        path = folder / "pip" / _CONSTANTS
        try:
            yield path, machine.text(path)
        except (OSError, Conflict):
            continue
    for path in _wheels(machine):
        try:
            yield path, _in_wheel(path)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            continue


def _packages(machine: Machine) -> Iterator[Path]:
    """Folders that packages are installed in: of the console's own Python, then of the distribution's."""
    yield from machine.packages
    for prefix in machine.programs:
        yield from sorted(prefix.glob("lib/python3*/dist-packages"), reverse=True)
        yield from sorted(prefix.glob("lib/python3*/site-packages"), reverse=True)


def _wheels(machine: Machine) -> Iterator[Path]:
    """The wheels of pip that come with a Python, for its venvs."""
    if machine.library is not None:
        yield from sorted(machine.library.glob("ensurepip/_bundled/pip-*.whl"))
    for prefix in machine.programs:
        yield from sorted(prefix.glob("share/python-wheels/pip-*.whl"))


def _in_wheel(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_MOST_WHEEL)
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        return wheel.read(f"pip/{_CONSTANTS}").decode()


def _declared(source: str) -> tuple[str, str] | None:
    """The arguments of ``PyPI = PackageIndex(...)``."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    for one in body:
        match one:
            case ast.Assign(
                targets=[ast.Name("PyPI")],
                value=ast.Call(args=[ast.Constant(str(url))], keywords=[ast.keyword(value=ast.Constant(str(files)))]),
            ):
                return url, files
    return None
