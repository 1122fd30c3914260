"""The entry point: one backend for each OpenSandbox server that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.opensandbox.options import platforms


class OpenSandboxProvider:
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "opensandbox"
    hosts_option: ClassVar[str] = "servers"
    absent_hint: ClassVar[str] = (
        'name a server: [backends.opensandbox.servers.NAME] url = "https://HOST", key = "SECRET"'
    )

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per server. Raises ConfigError. Uses no network."""
        found = platforms(cls.name, settings)
        if not found:
            return []
        from sandbox_console.backends.opensandbox.backend import OpenSandboxBackend

        return [
            OpenSandboxBackend(name, one, settings.key, settings.state_dir / name.replace("/", "%2F"))
            for name, one in found.items()
        ]
