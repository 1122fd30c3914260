"""The entry point: one backend for each E2B account that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sandbox_console.backends.base import BackendSettings, ReadKey
from sandbox_console.backends.common.servers import Made, ServersProvider
from sandbox_console.backends.e2b.options import Account, accounts


class E2bProvider(ServersProvider[Account]):
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "e2b"
    absent_hint: ClassVar[str] = 'name an account: [backends.e2b.servers.NAME] key = "SECRET"'

    @classmethod
    def servers(cls, settings: BackendSettings) -> Mapping[str, tuple[Account, ReadKey]]:
        return {name: (one, settings.key) for name, one in accounts(cls.name, settings).items()}

    @classmethod
    def backend(cls) -> Made[Account]:
        from sandbox_console.backends.e2b.backend import E2bBackend

        return E2bBackend
