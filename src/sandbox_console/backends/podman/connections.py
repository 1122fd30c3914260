"""Finds out where Podman's services are. It reads files, so call it off the event loop."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox_console.backends.docker.contexts import Endpoint
from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.own_files import read_own

SYSTEM_SOCKET = "/run/podman/podman.sock"
"""Where ``systemctl enable --now podman.socket`` listens."""

_MOST_BYTES = 4 << 20

DEFAULT = "default"
"""The connection that ``CONTAINER_HOST`` names."""


def default_connections() -> list[str]:
    """The connections that are used if the configuration names none.

    ``CONTAINER_HOST`` alone if it is set, as for podman itself; else the system's and the user's service, each if its
    socket is there. A machine without them has no Podman to show.
    """
    if os.environ.get("CONTAINER_HOST"):
        return [DEFAULT]
    places = {"system": SYSTEM_SOCKET, "user": user_socket()}
    return [name for name, path in places.items() if os.path.exists(path)]  # noqa: PTH110 - no access is no error


def user_socket() -> str:
    """Where ``systemctl --user enable --now podman.socket`` listens."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return f"{folder}/podman/podman.sock"


def resolve(connection: str) -> Endpoint:
    """The endpoint of a connection. Raises ConfigError if it is unknown or damaged."""
    if connection == "system":
        return Endpoint(f"unix://{SYSTEM_SOCKET}", implicit=True)
    if connection == "user":
        return Endpoint(f"unix://{user_socket()}", implicit=True)
    url = os.environ.get("CONTAINER_HOST", "") if connection == DEFAULT else _stored(connection)
    if not _usable(url):
        raise ConfigError(
            f"podman connection {connection!r} has an address that cannot be used: {url!r}",
            hint="write unix:///path/to/podman.sock, tcp://host:port or ssh://user@host/path/to/podman.sock",
        )
    return Endpoint(url, files=() if connection == DEFAULT else tuple(map(str, _files())))


def _files() -> tuple[Path, Path]:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "containers"  # noqa: PTH111 - Path.home() raises for a uid without an account
    return folder / "podman-connections.json", folder / "containers.conf"


def _usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return parts.path not in ("", "/") and not parts.netloc
        if parts.scheme == "ssh":  # an invalid port raises; a password would appear in files and messages
            return bool(parts.hostname) and parts.port != 0 and parts.password is None and parts.path not in ("", "/")
        return parts.scheme == "tcp" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


def _stored(connection: str) -> str:
    """The address that ``podman system connection add`` stored: since 5.0 as JSON, before in containers.conf."""
    newer, older = _files()
    for path, parse, keys in (
        (newer, json.loads, ("Connection", "Connections")),
        (older, tomllib.loads, ("engine", "service_destinations")),
    ):
        found = _table(path, parse, keys).get(connection)
        url = (found.get("URI") or found.get("uri")) if isinstance(found, dict) else None
        if isinstance(url, str):
            return url
    raise ConfigError(
        f"no podman connection is called {connection!r}", hint="podman system connection ls shows the known ones"
    )


def _table(path: Path, parse: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        found = parse(read_own(path, _MOST_BYTES, follow=True).decode())
        for key in keys:
            found = found.get(key) or {}
        return dict(found)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="podman system connection ls") from error
