"""The entry point: one backend for each OpenSandbox server that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, servers

_OPTIONS = ("servers",)


class Platform(Server, frozen=True, kw_only=True):
    """One server. ``no_network`` says that its sandboxes have no network anyway.

    Without it, a sandbox is created with a network policy that denies all, which the server enforces by a container of
    its own beside it, and refuses if it cannot.
    """

    no_network: bool = False


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
        check_known(cls.name, settings.options, _OPTIONS)
        found = servers(cls.name, settings.options, Platform)
        if not found:
            return []
        from sandbox_console.backends.opensandbox.backend import OpenSandboxBackend

        return [
            OpenSandboxBackend(name, one, settings.key, settings.state_dir / name.replace("/", "%2F"))
            for name, one in found.items()
        ]
