"""The table of the backend: the servers that it names."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, servers

_OPTIONS = ("servers",)


class Platform(Server, frozen=True, kw_only=True):
    """One server. ``no_network`` says that its sandboxes have no network anyway.

    Without it, a sandbox is created with a network policy that denies all, which the server enforces by a container of
    its own beside it, and refuses if it cannot.
    """

    no_network: bool = False


def platforms(backend: str, settings: BackendSettings) -> Mapping[str, Platform]:
    """The servers by name. Raises ConfigError."""
    check_known(backend, settings.options, _OPTIONS)
    return servers(backend, settings.options, Platform)
