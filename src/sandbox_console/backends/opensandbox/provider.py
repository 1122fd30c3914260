"""The entry point: one backend for each OpenSandbox server that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sandbox_console.backends.base import BackendSettings, ReadKey
from sandbox_console.backends.common.servers import Made, ServersProvider
from sandbox_console.backends.opensandbox.options import Platform, platforms


class OpenSandboxProvider(ServersProvider[Platform]):
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "opensandbox"
    absent_hint: ClassVar[str] = (
        'name a server: [backends.opensandbox.servers.NAME] url = "https://HOST", key = "SECRET"'
    )

    @classmethod
    def servers(cls, settings: BackendSettings) -> Mapping[str, tuple[Platform, ReadKey]]:
        return {name: (one, settings.key) for name, one in platforms(cls.name, settings).items()}

    @classmethod
    def backend(cls) -> Made[Platform]:
        from sandbox_console.backends.opensandbox.backend import OpenSandboxBackend

        return OpenSandboxBackend
