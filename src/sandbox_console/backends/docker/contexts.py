"""Where a context's engine is and how to speak to it. Reads files: call it off the event loop."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_console.errors import ConfigError

DEFAULT_SOCKET = "/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine's address. ``implicit`` where nobody named it: its absence is then no surprise."""

    url: str
    tls: ssl.SSLContext | None = None
    implicit: bool = False

    @property
    def socket(self) -> str | None:
        """The path of a Unix socket, or None for an engine elsewhere."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def base_url(self) -> str:
        """The address as an HTTP client wants it: a socket's path is the connector's business, not the URL's."""
        if self.socket is not None:
            return "unix://localhost"
        return f"{'https' if self.tls else 'http'}://{self.url.partition('://')[2].rstrip('/')}"


def resolve(context: str) -> Endpoint:
    """The endpoint of a context. Raises ConfigError where it is unknown, damaged, or needs ssh."""
    endpoint = _from_environment() if context == "default" else _stored(context)
    scheme = endpoint.url.partition("://")[0]
    if scheme == "ssh":
        raise ConfigError(
            f"docker context {context!r} is reached over ssh, which is not supported yet",
            hint="forward the engine's socket with ssh -L and set DOCKER_HOST to it",
        )
    if scheme not in ("unix", "tcp", "http", "https"):
        raise ConfigError(f"docker context {context!r} has an address of an unknown kind: {endpoint.url!r}")
    return endpoint


def _from_environment() -> Endpoint:
    url = os.environ.get("DOCKER_HOST", "")
    if not url:
        return Endpoint(f"unix://{DEFAULT_SOCKET}", implicit=True)
    if url.startswith("unix://") or not os.environ.get("DOCKER_TLS_VERIFY"):
        return Endpoint(url)
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
    return Endpoint(url, _tls(folder / "ca.pem", (folder / "cert.pem", folder / "key.pem"), verify=True))


def _stored(context: str) -> Endpoint:
    # The docker package takes a fifth of a second to import, so only a named context pays for it.
    from docker.context import ContextAPI
    from docker.utils.config import find_config_file

    # Without a config file the package would look for contexts in the current directory, which may be anyone's.
    found: Any = None
    try:
        found = ContextAPI.get_context(context) if find_config_file() else None
    except Exception as error:
        raise ConfigError(f"docker context {context!r} cannot be read: {error}") from error
    if found is None or not found.Host:
        raise ConfigError(f"no docker context is called {context!r}", hint="docker context ls shows the known ones")
    return Endpoint(found.Host, _stored_tls(context, found))


def _stored_tls(context: str, found: Any) -> ssl.SSLContext | None:
    config = found.TLSConfig
    if config is not None and config.cert:
        verify = not found.endpoints.get("docker", {}).get("SkipTLSVerify", False)
        return _tls(config.ca_cert, config.cert, verify=verify)
    folder = Path(found.tls_path) / "docker"
    if folder.is_dir() and any(folder.iterdir()):
        # The package drops an incomplete set silently, which would mean plain text to a TLS port.
        raise ConfigError(f"docker context {context!r} has incomplete TLS files", hint=f"ca, cert and key in {folder}")
    return None


def _tls(ca: str | Path, client: tuple[str | Path, str | Path], *, verify: bool) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=str(ca) if verify else None)
        if not verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        made.load_cert_chain(*map(str, client))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"docker's TLS files cannot be used: {error}", hint=f"look at {Path(ca).parent}") from error
    return made
