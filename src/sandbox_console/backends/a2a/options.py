"""The table of the backend: the runtimes that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common.options import check_known
from sandbox_console.backends.common.servers import Server, servers
from sandbox_console.errors import ConfigError

_OPTIONS = ("servers",)
_BUCKET = re.compile(r"(user-[0-9]+-files|agent-[A-Za-z0-9_.-]{1,96})")


class Runtime(Server, frozen=True, kw_only=True):
    """One runtime. ``bucket`` is the workspace bucket of what is created; ``grant`` is the name of a secret.

    ``no_network`` says that its sandboxes have no network; without it none can be created, as a spec without egress
    promises that.
    """

    bucket: str = "agent-console"
    grant: str = ""
    no_network: bool = False


def runtimes(backend: str, settings: BackendSettings) -> Mapping[str, Runtime]:
    """The runtimes by name. Raises ConfigError."""
    check_known(backend, settings.options, _OPTIONS)
    found = servers(backend, settings.options, Runtime)
    for name, one in found.items():
        if not _BUCKET.fullmatch(one.bucket):
            hint = 'bucket = "agent-NAME", or "user-NUMBER-files"'
            raise ConfigError(f"a2a.servers.{name}: bucket {one.bucket!r} is not the name of one", hint=hint)
    return found
