"""The table of the backend: the servers that it names, and the one of the environment or of a .env file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import BackendSettings, ReadKey
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, server, servers
from sandbox_console.errors import ConfigError, SecretError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.hostfs.walk import led_by

_OPTIONS = ("servers", "environment", "env_file")
_URL, _KEY = "MSB_SERVER_URL", "MSB_API_KEY"
_DEFAULT_URL = "http://127.0.0.1:5555"
_MOST_BYTES = 64 << 10


class LegacyServer(Server, frozen=True, kw_only=True):
    """One server. ``namespaces`` are those to show, ``["*"]`` for all, ``[]`` for a server without namespaces.

    ``no_network`` says that its sandboxes have no network; without it none can be created, as a spec without egress
    promises that.
    """

    namespaces: tuple[str, ...] = ("*",)
    no_network: bool = False


def legacy_servers(backend: str, settings: BackendSettings) -> Mapping[str, tuple[LegacyServer, ReadKey]]:
    """The servers by name, each with what reads its key. Raises ConfigError."""
    check_known(backend, settings.options, _OPTIONS)
    found: dict[str, tuple[LegacyServer, ReadKey]] = {
        name: (one, settings.key) for name, one in servers(backend, settings.options, LegacyServer).items()
    }
    if settings.options.get("environment") or settings.options.get("env_file"):
        found["environment"] = _of_environment(settings)
    return found


def _of_environment(settings: BackendSettings) -> tuple[LegacyServer, ReadKey]:
    known = {**_env_file(settings.options.get("env_file", ""), settings.guests), **os.environ}
    table = {"url": known.get(_URL, _DEFAULT_URL), "key": _KEY if known.get(_KEY) else ""}

    async def key(name: str) -> str:
        try:
            return await settings.key(name)  # a [secrets.MSB_API_KEY] table takes precedence
        except SecretError:
            settings.mask(known[name])
            return known[name]

    return server("microsandbox_legacy.environment", table, LegacyServer), key


def _env_file(path: Any, guests: Callable[[], GuestFolders]) -> dict[str, str]:
    """MSB_SERVER_URL and MSB_API_KEY of a .env file. Raises ConfigError if somebody else may have written it."""
    if not path:
        return {}
    if not isinstance(path, str):
        raise ConfigError("microsandbox_legacy: env_file is a path", hint='env_file = "~/.microsandbox/.env"')
    file = Path(path).expanduser()
    if not file.is_absolute():
        raise ConfigError("microsandbox_legacy: env_file is not an absolute path", hint='begin it with "/" or "~/"')
    try:
        if root := led_by(file, guests()):
            raise ConfigError(
                f"{file} is not used: it lies in {root}, which a sandbox can write", hint="keep it elsewhere"
            )
        if why := another_hand(file):
            raise ConfigError(f"{file} is not used: {why}", hint="it must be yours alone: chmod 600, chown")
        text = read_own(file, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="leave env_file out, or make the file") from None
    pairs = (line.removeprefix("export ").partition("=") for line in text.splitlines())
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs if key.strip() in (_URL, _KEY)}
