"""The entry point: one backend for each server that the configuration names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from sandbox_console.backends.base import Backend, BackendSettings, ReadKey
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, server, servers
from sandbox_console.errors import ConfigError, SecretError
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.hostfs.owners import another_hand

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


class LegacyProvider:
    """The entry point. Options: ``servers``, ``environment`` and ``env_file``; without them the backend is off.

    ``environment = true`` adds the server of MSB_SERVER_URL with the key of MSB_API_KEY, as the old clients find it.
    ``env_file`` is a .env file with these two, for what the environment does not have.
    """

    name: ClassVar[str] = "microsandbox_legacy"
    hosts_option: ClassVar[str] = "servers"
    absent_hint: ClassVar[str] = 'name a server: [backends.microsandbox_legacy.servers.NAME] url = "http://HOST:5555"'

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per server. Raises ConfigError. Uses no network."""
        check_known(cls.name, settings.options, _OPTIONS)
        found: dict[str, tuple[LegacyServer, ReadKey]] = {
            name: (one, settings.key) for name, one in servers(cls.name, settings.options, LegacyServer).items()
        }
        if settings.options.get("environment") or settings.options.get("env_file"):
            found["environment"] = _of_environment(settings)
        if not found:
            return []
        from sandbox_console.backends.microsandbox_legacy.backend import LegacyBackend

        return [
            LegacyBackend(name, one, key, settings.state_dir / name.replace("/", "%2F"))
            for name, (one, key) in found.items()
        ]


def _of_environment(settings: BackendSettings) -> tuple[LegacyServer, ReadKey]:
    known = {**_env_file(settings.options.get("env_file", "")), **os.environ}
    table = {"url": known.get(_URL, _DEFAULT_URL), "key": _KEY if known.get(_KEY) else ""}

    async def key(name: str) -> str:
        try:
            return await settings.key(name)  # a [secrets.MSB_API_KEY] table takes precedence
        except SecretError:
            settings.mask(known[name])
            return known[name]

    return server("microsandbox_legacy.environment", table, LegacyServer), key


def _env_file(path: Any) -> dict[str, str]:
    """MSB_SERVER_URL and MSB_API_KEY of a .env file. Raises ConfigError if another user could have written it."""
    if not path:
        return {}
    if not isinstance(path, str):
        raise ConfigError("microsandbox_legacy: env_file is a path", hint='env_file = "~/.microsandbox/.env"')
    file = Path(path).expanduser()
    if not file.is_absolute():
        raise ConfigError("microsandbox_legacy: env_file is not an absolute path", hint='begin it with "/" or "~/"')
    try:
        if why := another_hand(file):
            raise ConfigError(f"{file} is not used: {why}", hint="it must be yours alone: chmod 600, chown")
        text = read_own(file, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="leave env_file out, or make the file") from None
    pairs = (line.removeprefix("export ").partition("=") for line in text.splitlines())
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs if key.strip() in (_URL, _KEY)}
