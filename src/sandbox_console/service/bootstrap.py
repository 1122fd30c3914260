"""Put a console together from the configuration, or from backends that a test brings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from sandbox_console.backends import registry
from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.errors import ConfigError
from sandbox_console.service.config import Config, Paths, find_paths, load
from sandbox_console.service.console import Console
from sandbox_console.service.gate.trail import Trail, current_actor
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.hub import Hub


@asynccontextmanager
async def open_console(
    config: Config | None = None,
    *,
    config_file: Path | None = None,
    backends: Sequence[Backend] | None = None,
    read_only: bool = False,
    only_backend: str = "",
) -> AsyncIterator[Console]:
    """A console for as long as the block lasts.

    ``config`` replaces the file and environment; ``backends`` replaces those that are registered.
    ``read_only`` adds to the policy, ``only_backend`` (a name, or name/host) leaves the others out. Raises ConfigError.
    """
    paths = find_paths(config_file)
    config = config or load(paths, required=config_file is not None)
    if read_only:
        config = structs.replace(config, policy=structs.replace(config.policy, read_only=True))
    found = list(backends) if backends is not None else make_backends(config, paths, only_backend)
    paths.make_private()
    hub = Hub()
    console = Console(config, Fleet(found), Trail(paths.audit_db, current_actor(), hub.publish, config.audit), hub)
    try:
        yield console
    finally:
        await console.close()


def preload() -> None:
    """Import what consoles need of every backend here. Nothing is read or opened."""
    registry.preload()


def check_configuration(config_file: Path | None, only_backend: str = "") -> None:
    """Raise ConfigError for what :func:`open_console` would raise, for who opens consoles in other processes."""
    paths = find_paths(config_file)
    make_backends(load(paths, required=config_file is not None), paths, only_backend)


def make_backends(config: Config, paths: Paths, only: str = "") -> list[Backend]:
    """The backends that the config turns on, each with its own folder and table. Imports no provider's SDK.

    ``only`` is a name, or name/host, of those to make. Raises ConfigError where there is none.
    """
    only_name, _, only_host = only.partition("/")
    wanted = {name: bool(table.get("enabled", True)) for name, table in config.backends.items()}
    points = registry.enabled(wanted)
    if only_name and only_name not in points:
        raise ConfigError(f"no backend is called {only_name!r}, or it is off", hint=f"on: {', '.join(sorted(points))}")
    if config.backend and config.backend not in points:
        hint = f"on: {', '.join(sorted(points))}"
        raise ConfigError(f"backend = {config.backend!r} in the configuration: there is none, or it is off", hint=hint)
    found: list[Backend] = []
    for name, point in points.items():
        if only_name and name != only_name:
            continue
        table = {key: value for key, value in config.backends.get(name, {}).items() if key != "enabled"}
        found += registry.load(point).backends(BackendSettings(paths.backend(name), table))
    return _on_host(found, only_host) if only_host else found


def _on_host(found: Sequence[Backend], host: str) -> list[Backend]:
    there = [one for one in found if one.host == host]
    if not there:
        names = ", ".join(f"{one.name}/{one.host}" for one in found)
        raise ConfigError(f"{found[0].name} has no host {host!r}", hint=f"there is: {names}")
    return there
