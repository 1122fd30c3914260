"""The entry point: one backend for each Daytona organization that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.daytona.options import organizations


class DaytonaProvider:
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "daytona"
    hosts_option: ClassVar[str] = "servers"
    absent_hint: ClassVar[str] = 'name an organization: [backends.daytona.servers.NAME] key = "SECRET"'

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per organization. Raises ConfigError. Uses no network."""
        found = organizations(cls.name, settings)
        if not found:
            return []
        from sandbox_console.backends.daytona.backend import DaytonaBackend

        return [
            DaytonaBackend(name, one, settings.key, settings.state_dir / name.replace("/", "%2F"))
            for name, one in found.items()
        ]
