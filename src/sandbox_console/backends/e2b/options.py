"""The table of the backend: the accounts that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from msgspec import Meta

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, server, servers

_OPTIONS = ("servers",)


class Account(Server, frozen=True, kw_only=True):
    """One account. ``url`` is that of the API (E2B_API_URL), ``sandboxes`` that of the sandboxes (E2B_SANDBOX_URL).

    ``lifetime_s`` is how long E2B keeps a sandbox that is started or resumed, in seconds.
    """

    url: str = "https://api.e2b.app"
    sandboxes: str = ""
    lifetime_s: Annotated[int, Meta(ge=15, le=30 * 86400)] = 3600

    @property
    def inside(self) -> str:
        """The address of the sandboxes: ``sandboxes``, that of the API's domain, or that of the API itself."""
        parts = urlsplit(self.url)
        if self.sandboxes or not parts.netloc.startswith("api."):
            return self.sandboxes or self.url
        return urlunsplit((parts.scheme, "sandbox." + parts.netloc.removeprefix("api."), "", "", ""))


def accounts(backend: str, settings: BackendSettings) -> Mapping[str, Account]:
    """The accounts by name. Raises ConfigError."""
    check_known(backend, settings.options, _OPTIONS)
    found = servers(backend, settings.options, Account)
    for name, one in found.items():
        table = {"url": one.inside, "key": one.key, "insecure": one.insecure}
        server(f"{backend}.servers.{name}: sandboxes", table, Server)
    return found
