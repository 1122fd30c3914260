"""The entry point: one backend for each E2B account that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.e2b.options import accounts


class E2bProvider:
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "e2b"
    hosts_option: ClassVar[str] = "servers"
    absent_hint: ClassVar[str] = 'name an account: [backends.e2b.servers.NAME] key = "SECRET"'

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per account. Raises ConfigError. Uses no network."""
        found = accounts(cls.name, settings)
        if not found:
            return []
        from sandbox_console.backends.e2b.backend import E2bBackend

        return [
            E2bBackend(name, one, settings.key, settings.state_dir / name.replace("/", "%2F"))
            for name, one in found.items()
        ]
