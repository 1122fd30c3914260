"""The entry point: one backend for each Daytona organization that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sandbox_console.backends.base import BackendSettings, ReadKey
from sandbox_console.backends.common.servers import Made, ServersProvider
from sandbox_console.backends.daytona.options import Organization, organizations


class DaytonaProvider(ServersProvider[Organization]):
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "daytona"
    absent_hint: ClassVar[str] = 'name an organization: [backends.daytona.servers.NAME] key = "SECRET"'

    @classmethod
    def servers(cls, settings: BackendSettings) -> Mapping[str, tuple[Organization, ReadKey]]:
        return {name: (one, settings.key) for name, one in organizations(cls.name, settings).items()}

    @classmethod
    def backend(cls) -> Made[Organization]:
        from sandbox_console.backends.daytona.backend import DaytonaBackend

        return DaytonaBackend
