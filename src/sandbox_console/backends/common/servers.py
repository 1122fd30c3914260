"""The table ``servers`` of a backend that has any number of remote servers: an address, and the name of a secret."""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from sandbox_console.backends.base import Backend, BackendSettings, ReadKey
from sandbox_console.backends.common.options import check_known
from sandbox_console.errors import ConfigError


class Server(Struct, frozen=True, kw_only=True):
    """One server. ``key`` is the name of a ``[secrets.NAME]`` table, never the key itself.

    ``insecure`` allows to send the key without TLS to another machine.
    """

    url: str
    key: str = ""
    insecure: bool = False


S = TypeVar("S", bound=Server)
Made = Callable[[str, S, ReadKey, Path], Backend]
"""Makes the backend of a server: its name, its table, what reads its key, and the folder of its state."""


class ServersProvider(ABC, Generic[S]):
    """The entry point of a backend that is off until its configuration names ``servers``."""

    name: ClassVar[str]
    hosts_option: ClassVar[str] = "servers"

    @classmethod
    @abstractmethod
    def servers(cls, settings: BackendSettings) -> Mapping[str, tuple[S, ReadKey]]:
        """The servers by name, each with what reads its key. Raises ConfigError."""

    @classmethod
    @abstractmethod
    def backend(cls) -> Made[S]:
        """The class of the backend, imported only when a server is named."""

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend for each server. Raises ConfigError. Uses no network."""
        if not (found := cls.servers(settings)):
            return []
        make, folder = cls.backend(), settings.state_dir
        return [make(name, one, key, folder / name.replace("/", "%2F")) for name, (one, key) in found.items()]


def servers(backend: str, options: Mapping[str, Any], kind: type[S]) -> dict[str, S]:
    """The servers by name. Raises ConfigError, which names the server and the option."""
    table = options.get("servers", {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{backend}: servers is a table", hint=f"[backends.{backend}.servers.NAME] url = ...")
    return {str(name): server(f"{backend}.servers.{name}", one, kind) for name, one in table.items()}


def server(label: str, table: Any, kind: type[S]) -> S:
    """One server. Raises ConfigError."""
    if isinstance(table, Mapping):
        check_known(label, table, kind.__struct_fields__)
    try:
        found = msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{label}: {error}", hint='url = "https://HOST", key = "NAME" of a [secrets.NAME]') from None
    if problem := _problem(found):
        raise ConfigError(f"{label}: {problem[0]}", hint=problem[1])
    return found


def _problem(found: Server) -> tuple[str, str] | None:
    parts = urlsplit(found.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "url is not an http or https address", 'url = "https://HOST"'
    if parts.username or parts.password or parts.query or parts.fragment:
        return "url has a login, a query or a fragment", 'key = "NAME" of a [secrets.NAME] table is for the key'
    if found.key and parts.scheme == "http" and not found.insecure and not _loopback(parts.hostname):
        return "the key would be sent to another machine without TLS", "use https, or insecure = true"
    return None


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
