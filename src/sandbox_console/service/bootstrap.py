"""Opens a console from the configuration, or from backends that a test brings."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from msgspec import structs

from sandbox_console.backends import registry
from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.errors import BackendUnreachable, ConfigError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.access import work_for
from sandbox_console.model.secret import Secret
from sandbox_console.service.config import Config, load, refuse_strangers
from sandbox_console.service.console import Console
from sandbox_console.service.gate.audit_log import AuditLog, current_actor
from sandbox_console.service.host_options import HostTables
from sandbox_console.service.paths import Paths, find_paths
from sandbox_console.service.people.identity import VARIABLE, rights_of_process
from sandbox_console.service.people.users import Users
from sandbox_console.service.private_folders import library_files, private_folders
from sandbox_console.service.reads import shared_folders
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.folder_guard import (
    OwnFolders,
    besides_homes,
    keep_temporary_files_apart,
    refuse_guests,
    without_guests_programs,
)
from sandbox_console.service.reads.hub import Hub
from sandbox_console.service.reads.known_names import Key, KnownNames

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OURS = ("enabled", "timeout_s")
"""Options of a backend's table that are the service's, not the provider's."""


@asynccontextmanager
async def open_console(
    config: Config | None = None,
    *,
    config_file: Path | None = None,
    backends: Sequence[Backend] | None = None,
    read_only: bool = False,
    only_backend: str = "",
    only_hosts: Sequence[str] = (),
    secrets: Mapping[str, Secret] | None = None,
) -> AsyncIterator[Console]:
    """A console for as long as the block lasts.

    ``config`` replaces the file and the environment; ``backends`` replaces those that are registered. ``read_only``
    adds to the policy; ``only_backend`` (a name, or name/host) leaves the others out, and so does ``only_hosts``, which
    are selectors as ``--host`` takes them: then sandboxes are made where the fewest run. ``secrets`` are given by
    value, for this process only. Raises ConfigError, SecretError, and UsageError for a selector without a host.
    """
    paths = find_paths(config_file)

    def read() -> Config:
        refuse_config(paths)
        return restricted(load(paths, required=config_file is not None), read_only=read_only)

    refuse_config(paths)
    follows = config is None
    config = read() if config is None else restricted(config, read_only=read_only)
    keys = _Keys()
    found = list(backends) if backends is not None else make_backends(config, paths, only_backend, keys)
    found = _selected(config, found, only_hosts)
    paths.make_private()
    refuse_strangers("the state folder", paths.state)
    if (person := os.environ.get(VARIABLE)) is not None:
        work_for(rights_of_process(person, Users(paths.tokens)))
    options = ["--config", str(paths.config_file)] if config_file is not None else []
    keys.console = console = _console(config, paths, found, secrets, options, only_hosts)
    if follows:
        console.follow_config(paths.config_file, read)
    try:
        yield console
    finally:
        await console.close()


def _console(
    config: Config, paths: Paths, backends: Sequence[Backend], secrets: Mapping[str, Secret] | None,
    options: list[str], only_hosts: Sequence[str],
) -> Console:  # fmt: skip
    """A console over these backends. Raises ConfigError for state that a guest can write."""
    own = own_places(config, paths)
    keep_apart(own)
    hub = Hub()
    names, spread = KnownNames(paths.state / "names"), bool(only_hosts)
    fleet = Fleet(backends, names, timeouts(config, backends), HostTables(config.hosts), spread=spread)
    audit_log = AuditLog(paths.audit_db, current_actor(), hub.publish, config.audit)
    return Console(config, fleet, audit_log, hub, own, secrets, options, paths.templates)


def _selected(config: Config, backends: list[Backend], selectors: Sequence[str]) -> list[Backend]:
    """The hosts that ``--host`` means; without a selector, all. Raises UsageError."""
    if not selectors:
        return backends
    keys = HostTables(config.hosts).chosen([(one.name, one.host) for one in backends], selectors)
    return [one for one in backends if (one.name, one.host) in keys]


def host_words(config_file: Path | None = None) -> list[str]:
    """What ``--host`` takes: the names, groups and labels of all hosts. No host is contacted. Raises ConfigError."""
    paths = find_paths(config_file)
    config = load(paths)
    keys = [(one.name, one.host) for one in make_backends(config, paths)]
    return HostTables(config.hosts).words(keys)


def restricted(config: Config, *, read_only: bool) -> Config:
    """The configuration, with a policy that forbids every change if ``read_only``."""
    if not read_only:
        return config
    return structs.replace(config, policy=structs.replace(config.policy, read_only=True))


def last_names() -> set[str]:
    """The names of sandboxes as each host last listed them. No host is contacted."""
    return KnownNames(find_paths().state / "names").every()


def timeouts(config: Config, backends: Sequence[Backend]) -> dict[Key, float]:
    """How long each host may take to answer, in seconds, where it is set.

    ``[backends.NAME] timeout_s`` is a number, or a table with a number for each host; that of a ``[hosts]`` table wins.
    Raises ConfigError.
    """
    found: dict[Key, float] = {}
    for name, table in config.backends.items():
        setting = table.get("timeout_s")
        each = setting if isinstance(setting, Mapping) else {} if setting is None else {"": setting}
        for host, seconds in each.items():
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
                raise ConfigError(
                    f"backends.{name}.timeout_s: {seconds!r} is not a time above 0",
                    hint="seconds, or { HOST = seconds }",
                )
            found |= {
                (backend.name, backend.host): float(seconds)
                for backend in backends
                if backend.name == name and host in ("", backend.host)
            }
    tables = HostTables(config.hosts)
    for key in [(backend.name, backend.host) for backend in backends]:
        if (seconds := tables.of(key).timeout_s) is not None:
            found[key] = seconds
    return found


def preload() -> None:
    """Import what a console needs of every backend on this machine. Nothing is read or opened."""
    registry.preload()


def check_configuration(config_file: Path | None, only_backend: str = "", only_hosts: Sequence[str] = ()) -> None:
    """Raise the ConfigError of :func:`open_console`, for a caller that opens consoles in other processes."""
    paths = find_paths(config_file)
    refuse_config(paths)
    config = load(paths, required=config_file is not None)
    _selected(config, make_backends(config, paths, only_backend), only_hosts)


def known_ground(config_file: Path | None = None) -> GuestFolders:
    """What guests can change, as far as is known without asking backends, for a caller without a console.

    From now on, temporary files of this process are not there, and it runs no programs from there.
    """
    state = find_paths(config_file).state
    known = shared_folders.everywhere(state)
    _leave_guests_folders(state, known)
    return known.ground()


def refuse_config(paths: Paths) -> None:
    """Raise ConfigError for a config file that a guest can write, before it is read."""
    refuse_guests(OwnFolders(paths.state, (_config_file(paths),)), shared_folders.everywhere(paths.state))


def keep_apart(own: OwnFolders) -> None:
    """Raise ConfigError for state that a guest can write, and do not run programs from folders that one can write."""
    known = shared_folders.everywhere(own.state)
    refuse_guests(own, known)
    _leave_guests_folders(own.state, known)


def _leave_guests_folders(state: Path, known: shared_folders.SharedFolders) -> None:
    """From now on, this process has no temporary files in guests' folders, and runs no programs from them."""
    keep_temporary_files_apart(state, known)
    if known.all and (path := os.environ.get("PATH")):
        os.environ["PATH"] = without_guests_programs(path, known.all)


def own_places(config: Config, paths: Paths) -> OwnFolders:
    """The places that no guest may ever have. They include a file that ``--config`` names, but not its folder."""
    state = paths.state
    found = [("the console's state", state), _config_file(paths)]
    found += [("the console's state", path) for path in _links_in(state)]
    if paths.config_file.parent == find_paths().config_file.parent and not os.environ.get("SANDBOX_CONSOLE_CONFIG"):
        found.append(("the console's configuration", paths.config_file.parent))
    if config.audit.archive:
        found.append(("the audit log's archive", Path(config.audit.archive).expanduser()))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        found.append(("XDG_RUNTIME_DIR, with sockets of yours", Path(runtime)))
    private = () if config.policy.home_workspace else tuple(private_folders())
    used, read = tuple(_used(config)), tuple(library_files())
    return OwnFolders(state, tuple(found), config.policy.home_workspace, used, private, read)


def _used(config: Config) -> Iterator[tuple[str, Path]]:
    """What the console runs, or reads to decide what it does."""
    yield from _sockets()
    yield "the console's own program", Path(__file__).parents[1]
    yield "the console's own program", Path(sysconfig.get_path("purelib"))
    if sys.prefix != sys.base_prefix:
        yield "the console's own program", Path(sysconfig.get_path("scripts"))
    home = os.environ.get("SANDBOX_CONSOLE_HOME")
    with contextlib.suppress(RuntimeError):  # no home
        cache = Path(home).expanduser() / "cache" if home else platformdirs.user_cache_path("sandbox-console")
        yield "the console's cache, with programs that it runs", cache
    for path in _kubeconfigs(config):
        yield "a kubeconfig, with programs that it runs", path


def _kubeconfigs(config: Config) -> Iterator[Path]:
    """The folders that the configuration or the environment names."""
    named = config.backends.get("kubernetes", {}).get("kubeconfig")
    for text in (named, *os.environ.get("KUBECONFIG", "").split(os.pathsep)):
        if isinstance(text, str) and text:
            with contextlib.suppress(RuntimeError):  # no home
                yield Path(text).expanduser()


def _sockets() -> Iterator[tuple[str, Path]]:
    """Sockets through which anybody can act as the user: an engine, the agent with the keys, the shells in tmux."""
    for label, path in (
        ("an engine's socket", "/var/run/docker.sock"),
        ("an engine's socket", os.environ.get("DOCKER_HOST", "").removeprefix("unix://")),
        ("an engine's socket", "/run/podman/podman.sock"),
        ("an engine's socket", os.environ.get("CONTAINER_HOST", "").removeprefix("unix://")),
        ("your ssh agent's socket", os.environ.get("SSH_AUTH_SOCK", "")),
        ("your tmux's socket", os.environ.get("TMUX", "").partition(",")[0]),
    ):
        if path.startswith("/"):
            yield label, Path(path)


def _config_file(paths: Paths) -> tuple[str, Path]:
    return "the console's configuration", paths.config_file


def _links_in(state: Path) -> list[Path]:
    """Parts of the state that are kept elsewhere: recordings on another disk."""
    try:
        return [path for path in state.iterdir() if path.is_symlink()]
    except OSError:
        return []


class _Keys:
    """The keys of remote servers. Backends are made before the console that reads secrets, and use it later."""

    console: Console

    async def read(self, name: str) -> str:
        return await self.console.backend_key(name)

    def mask(self, value: str) -> None:
        self.console.mask_key(value)


def make_backends(config: Config, paths: Paths, only: str = "", keys: _Keys | None = None) -> list[Backend]:
    """The backends that the config turns on, each with its folder and table. This imports no SDK.

    ``only`` is a name, or name/host, of those to make; ``keys`` reads the keys of servers. Raises ConfigError if there
    is no such backend or it cannot be imported, and BackendUnreachable if it has no host.
    """
    only_name, _, only_host = only.partition("/")
    wanted = {name: bool(table.get("enabled", True)) for name, table in config.backends.items()}
    points = registry.enabled(wanted)
    if only_name and only_name not in points:
        raise ConfigError(f"no backend is called {only_name!r}, or it is off", hint=f"on: {', '.join(sorted(points))}")
    if config.backend and config.backend not in points:
        hint = f"on: {', '.join(sorted(points))}"
        raise ConfigError(f"backend = {config.backend!r} in the configuration: there is none, or it is off", hint=hint)
    backends: list[Backend] = []
    for name, point in points.items():
        if only_name in ("", name):
            backends += _of_provider(name, point, config, paths, keys, required=bool(only_name))
    return _on_host(backends, only_host) if only_host else backends


def _of_provider(
    name: str, point: EntryPoint, config: Config, paths: Paths, keys: _Keys | None, *, required: bool
) -> Sequence[Backend]:
    """The hosts of one provider. If it cannot be imported, or has no host, that is an error if it is ``required``."""
    table = {key: value for key, value in config.backends.get(name, {}).items() if key not in _OURS}
    try:
        provider = registry.load(point)
    except ConfigError as error:
        if required:
            raise
        from sandbox_console.backends.common.missing_backend import MissingBackend  # rarely needed

        return [MissingBackend(name, error)]

    def guests() -> GuestFolders:
        return besides_homes(shared_folders.everywhere(paths.state)).ground()

    settings = BackendSettings(paths.backend(name), table, guests)
    made = provider.backends(structs.replace(settings, key=keys.read, mask=keys.mask) if keys else settings)
    if required and not made:
        raise BackendUnreachable(f"{name} is not on this machine", hint=getattr(provider, "absent_hint", ""))
    return made


def _on_host(backends: Sequence[Backend], host: str) -> list[Backend]:
    there = [backend for backend in backends if backend.host == host]
    if not there:
        names = ", ".join(f"{backend.name}/{backend.host}" for backend in backends)
        raise ConfigError(f"{backends[0].name} has no host {host!r}", hint=f"there is: {names}")
    return there
