"""The entry point: one backend for each runtime that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sandbox_console.backends.a2a.options import Runtime, runtimes
from sandbox_console.backends.base import BackendSettings, ReadKey
from sandbox_console.backends.common.servers import Made, ServersProvider


class A2aProvider(ServersProvider[Runtime]):
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "a2a"
    absent_hint: ClassVar[str] = 'name a runtime: [backends.a2a.servers.NAME] url = "https://HOST", key = "SECRET"'

    @classmethod
    def servers(cls, settings: BackendSettings) -> Mapping[str, tuple[Runtime, ReadKey]]:
        return {name: (one, settings.key) for name, one in runtimes(cls.name, settings).items()}

    @classmethod
    def backend(cls) -> Made[Runtime]:
        from sandbox_console.backends.a2a.backend import A2aBackend

        return A2aBackend
