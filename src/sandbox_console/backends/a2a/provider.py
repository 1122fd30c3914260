"""The entry point: one backend for each runtime that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.a2a.options import runtimes
from sandbox_console.backends.base import Backend, BackendSettings


class A2aProvider:
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "a2a"
    hosts_option: ClassVar[str] = "servers"
    absent_hint: ClassVar[str] = 'name a runtime: [backends.a2a.servers.NAME] url = "https://HOST", key = "SECRET"'

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per runtime. Raises ConfigError. Uses no network."""
        found = runtimes(cls.name, settings)
        if not found:
            return []
        from sandbox_console.backends.a2a.backend import A2aBackend

        return [
            A2aBackend(name, one, settings.key, settings.state_dir / name.replace("/", "%2F"))
            for name, one in found.items()
        ]
