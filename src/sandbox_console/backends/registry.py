"""Backends by entry point: listing names imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox_console.backends.base import Provider
from sandbox_console.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sandbox_console.backends"
_DISTRIBUTION = "sandbox-console-tui"


def available() -> dict[str, EntryPoint]:
    """Every registered backend by name, none of them imported. Raises ConfigError for a name registered twice."""
    from importlib.metadata import entry_points  # 11 ms, and a console that is handed its backends needs none

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found and found[point.name].value != point.value:
            raise ConfigError(
                f"two packages register a backend called {point.name!r}: {found[point.name].value} and {point.value}",
                hint="uninstall one of them",
            )
        found[point.name] = point
    return found


def built_in(point: EntryPoint) -> bool:
    """Whether the backend comes with the console; others are off until the config names them."""
    return point.dist is not None and point.dist.name == _DISTRIBUTION


def load(point: EntryPoint) -> type[Provider]:
    """Import a provider. Raises ConfigError that names the missing extra or module."""
    try:
        provider: type[Provider] = point.load()
    except ImportError as error:
        raise ConfigError(
            f"backend {point.name!r} cannot be loaded: {error}",
            hint=f"pip install {point.dist.name if point.dist else point.value}[{point.name}]",
        ) from error
    return provider


def enabled(wanted: Mapping[str, bool]) -> dict[str, EntryPoint]:
    """Backends that are on: the built-in ones unless turned off, others where the config turns them on."""
    points = available()
    for name in wanted:
        if name not in points:
            raise ConfigError(f"no backend is called {name!r}", hint=f"known ones: {', '.join(sorted(points))}")
    return {name: point for name, point in points.items() if wanted.get(name, built_in(point))}
