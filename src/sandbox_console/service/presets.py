"""Presets: named lists of egress patterns. Some come with the package; the user's own are in ``presets.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.model import hosts
from sandbox_console.service.config import refuse_strangers

FILE = "presets.toml"
"""The user's file, beside the configuration. The package has one of the same name."""

_MOST_BYTES = 1 << 20


class Preset(Struct, frozen=True, forbid_unknown_fields=True):
    """A ``[presets.NAME]`` table: what it is for, its patterns, and where it is documented that these are needed."""

    title: str
    hosts: tuple[str, ...]
    source: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    presets: dict[str, Preset] = {}


def load_presets(config_file: Path) -> tuple[Sequence[Preset], str]:
    """All presets, by title, and why those of the user cannot be used (empty if they can, or if there are none).

    A preset of the user replaces the package's of the same name. This reads files; call it in a thread.
    """
    found = _read(files("sandbox_console.service").joinpath(FILE).read_text(), FILE)
    own = config_file.with_name(FILE)
    try:
        found = found | _read(_text(own), str(own))
    except ConfigError as error:
        return _sorted(found), f"{error.message}; {error.hint}" if error.hint else error.message
    return _sorted(found), ""


def _sorted(presets: dict[str, Preset]) -> Sequence[Preset]:
    return sorted(presets.values(), key=lambda preset: preset.title)


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
