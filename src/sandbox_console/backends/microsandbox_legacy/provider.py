"""The entry point: one backend for each server that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.microsandbox_legacy.options import legacy_servers


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
        found = legacy_servers(cls.name, settings)
        if not found:
            return []
        from sandbox_console.backends.microsandbox_legacy.backend import LegacyBackend

        return [
            LegacyBackend(name, one, key, settings.state_dir / name.replace("/", "%2F"))
            for name, (one, key) in found.items()
        ]
