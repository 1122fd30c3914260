"""The entry point: one backend for each server that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sandbox_console.backends.base import BackendSettings, ReadKey
from sandbox_console.backends.common.servers import Made, ServersProvider
from sandbox_console.backends.microsandbox_legacy.options import LegacyServer, legacy_servers


class LegacyProvider(ServersProvider[LegacyServer]):
    """The entry point. Options: ``servers``, ``environment`` and ``env_file``; without them the backend is off.

    ``environment = true`` adds the server of MSB_SERVER_URL with the key of MSB_API_KEY, as the old clients find it.
    ``env_file`` is a .env file with these two, for what the environment does not have.
    """

    name: ClassVar[str] = "microsandbox_legacy"
    absent_hint: ClassVar[str] = 'name a server: [backends.microsandbox_legacy.servers.NAME] url = "http://HOST:5555"'

    @classmethod
    def servers(cls, settings: BackendSettings) -> Mapping[str, tuple[LegacyServer, ReadKey]]:
        return legacy_servers(cls.name, settings)

    @classmethod
    def backend(cls) -> Made[LegacyServer]:
        from sandbox_console.backends.microsandbox_legacy.backend import LegacyBackend

        return LegacyBackend
