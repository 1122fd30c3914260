"""Presets: named lists of egress patterns. Some come with the package; the user's own are in ``presets.toml``.

Those of package registries are what this machine's own tools are set to.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.model import hosts
from sandbox_console.service.config import refuse_strangers
from sandbox_console.service.registries.apt import debian_mirror
from sandbox_console.service.registries.cargo import crates_index
from sandbox_console.service.registries.go import go_proxy
from sandbox_console.service.registries.machine import Machine, Site
from sandbox_console.service.registries.npm import npm_registry
from sandbox_console.service.registries.pip import python_index

FILE = "presets.toml"
"""The user's file, beside the configuration. The package has one of the same name."""

_MOST_BYTES = 1 << 20


class Preset(Struct, frozen=True, forbid_unknown_fields=True):
    """A ``[presets.NAME]`` table: what it is for, its patterns, and where it is documented that these are needed."""

    title: str
    hosts: tuple[str, ...]
    source: str = ""


class OfferedPreset(Struct, frozen=True):
    """A preset that can be chosen. ``problem`` is why it has no hosts; they are then for the user to name."""

    name: str
    title: str
    hosts: tuple[str, ...]
    source: str = ""
    problem: str = ""
    hint: str = ""


_REGISTRIES: Mapping[str, tuple[str, Callable[[Machine], Site]]] = {
    "pypi": ("PyPI: Python packages, as pip is set up here", python_index),
    "npm": ("npm: JavaScript packages, as npm is set up here", npm_registry),
    "debian": ("Debian: packages, as apt is set up here", debian_mirror),
    "crates": ("Crates: Rust packages, as cargo is set up here", crates_index),
    "go": ("Go: modules, as go is set up here", go_proxy),
}


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    presets: dict[str, Preset] = {}


def this_machine(guest_folders: GuestFolders, image: str = "", workspace: str = "") -> Machine:
    """Return this machine, for a sandbox of this image (a ``dir:`` one has its own apt) that gets this workspace."""
    folder = image.removeprefix("dir:") if image.startswith("dir:/") else ""
    return Machine(
        dict(os.environ), _home(), guest_folders=guest_folders, image=folder, library=Path(os.__file__).parent,
        packages=tuple(Path(one) for one in sys.path if one.startswith("/") and one.endswith("-packages")),
        workspaces=(workspace,) if workspace.startswith("/") else (),
    )  # fmt: skip


def load_presets(config_file: Path, machine: Machine | None = None) -> tuple[Sequence[OfferedPreset], str]:
    """All presets, by title, and why those of the user cannot be used (empty if they can, or if there are none).

    A preset of the user replaces another of the same name. Those of registries are left out without a ``machine``.
    This reads files; call it in a thread.
    """
    own, problem = config_file.with_name(FILE), ""
    found = _read(files("sandbox_console.service").joinpath(FILE).read_text(), FILE)
    try:
        found = found | _read(_text(own), str(own))
    except ConfigError as error:
        problem = f"{error.message}; {error.hint}" if error.hint else error.message
    offered = [OfferedPreset(name, one.title, one.hosts, one.source) for name, one in found.items()]
    if machine is not None:
        missing = {name: one for name, one in _REGISTRIES.items() if name not in found}
        offered += [_registry(name, title, learn(machine), own) for name, (title, learn) in missing.items()]
    return sorted(offered, key=lambda preset: preset.title), problem


def _registry(name: str, title: str, site: Site, own: Path) -> OfferedPreset:
    if site.hosts:
        return OfferedPreset(name, title, site.hosts, site.source)
    return OfferedPreset(name, title, (), "", f"not known: {site.problem}", f"add [presets.{name}] to {own}")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # this user has none
        return Path("/nonexistent")


def _text(path: Path) -> str:
    """The user's file; empty if there is none. Raises ConfigError."""
    refuse_strangers("the file of presets", path)
    try:
        return read_own(path, _MOST_BYTES, follow=True).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read(text: str, where: str) -> dict[str, Preset]:
    """The presets of a file. Raises ConfigError."""
    try:
        found = msgspec.convert(tomllib.loads(text), _File).presets
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{where}: {error}", hint="docs/egress.md shows the format") from None
    except RecursionError:
        raise ConfigError(f"{where}: it is nested too deep", hint="docs/egress.md shows the format") from None
    for name, preset in found.items():
        for pattern in preset.hosts:
            try:
                hosts.parse(pattern, allow_ip=True)
            except ValueError as error:
                raise ConfigError(f"{where}: presets.{name}: {error}") from None
    return found
