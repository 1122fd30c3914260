"""The entry point: one backend for each runtime that the configuration names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from sandbox_console.backends.base import Backend, BackendSettings
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


class A2aProvider:
    """The entry point. The only option is ``servers``; without it the backend is off."""

    name: ClassVar[str] = "a2a"
    hosts_option: ClassVar[str] = "servers"
    absent_hint: ClassVar[str] = 'name a runtime: [backends.a2a.servers.NAME] url = "https://HOST", key = "SECRET"'

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per runtime. Raises ConfigError. Uses no network."""
        check_known(cls.name, settings.options, _OPTIONS)
        found = servers(cls.name, settings.options, Runtime)
        for name, one in found.items():
            if not _BUCKET.fullmatch(one.bucket):
                hint = 'bucket = "agent-NAME", or "user-NUMBER-files"'
                raise ConfigError(f"a2a.servers.{name}: bucket {one.bucket!r} is not the name of one", hint=hint)
        if not found:
            return []
        from sandbox_console.backends.a2a.backend import A2aBackend

        return [
            A2aBackend(name, one, settings.key, settings.state_dir / name.replace("/", "%2F"))
            for name, one in found.items()
        ]
