"""The table of the backend: the organizations that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from msgspec import Meta

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, server, servers

_OPTIONS = ("servers",)


class Organization(Server, frozen=True, kw_only=True):
    """One organization. ``url`` is that of the API (DAYTONA_API_URL), ``toolbox`` that of the sandboxes' toolboxes.

    ``auto_stop_minutes`` is how long Daytona lets a sandbox of this console run idle; 0 is for ever.
    """

    url: str = "https://app.daytona.io/api"
    toolbox: str = ""
    auto_stop_minutes: Annotated[int, Meta(ge=0, le=525_600)] = 15

    @property
    def inside(self) -> str:
        """The address of the toolboxes: ``toolbox``, or that of the proxy of the API's domain."""
        parts = urlsplit(self.url)
        if self.toolbox or not parts.netloc.startswith("app."):
            return self.toolbox or f"{self.url.rstrip('/')}/toolbox"
        return urlunsplit((parts.scheme, f"proxy.{parts.netloc}", "/toolbox", "", ""))


def organizations(backend: str, settings: BackendSettings) -> Mapping[str, Organization]:
    """The organizations by name. Raises ConfigError."""
    check_known(backend, settings.options, _OPTIONS)
    found = servers(backend, settings.options, Organization)
    for name, one in found.items():
        table = {"url": one.inside, "key": one.key, "insecure": one.insecure}
        server(f"{backend}.servers.{name}: toolbox", table, Server)
    return found
