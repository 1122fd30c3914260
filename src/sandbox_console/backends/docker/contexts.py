"""Finds out where a context's engine is, and how to reach it. It reads files, so call it off the event loop."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.own_files import read_own

DEFAULT_SOCKET = "/var/run/docker.sock"
_MOST_BYTES = 4 << 20


class Endpoint(Struct, frozen=True):
    """An engine's address. It is ``implicit`` if nobody named it, so that its absence is no surprise.

    ``tunnel`` is a Unix socket of this host that leads to an engine elsewhere. ``files`` are the files and folders of
    this machine that say where the engine is, and whose certificates it may show.
    """

    url: str
    tls: ssl.SSLContext | None = None
    implicit: bool = False
    tunnel: str | None = None
    files: tuple[str, ...] = ()

    @property
    def socket(self) -> str | None:
        """The path of the Unix socket of an engine on this host, or None for an engine elsewhere."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def ssh(self) -> bool:
        """Whether it is reached over ssh."""
        return self.url.startswith("ssh://")

    @property
    def dialled(self) -> str | None:
        """The path of the Unix socket to connect to, whatever is behind it; None for a network address."""
        return self.socket or self.tunnel

    @property
    def base_url(self) -> str:
        """The address as an HTTP client takes it. A socket's path is for the connector and not in the URL."""
        if self.dialled is not None:
            return "unix://localhost"
        return f"{'https' if self.tls else 'http'}://{self.url.partition('://')[2].rstrip('/')}"


def resolve(context: str) -> Endpoint:
    """The endpoint of a context. Raises ConfigError if it is unknown or damaged."""
    endpoint = _from_environment() if context == "default" else _stored(context)
    scheme = endpoint.url.partition("://")[0]
    if not _usable(endpoint.url, scheme):
        raise ConfigError(
            f"docker context {context!r} has an address that cannot be used: {endpoint.url!r}",
            hint="write unix:///path/to/docker.sock, tcp://host:port or ssh://user@host",
        )
    return endpoint


def _usable(url: str, scheme: str) -> bool:
    if scheme == "unix":
        return len(url) > len("unix://")
    try:
        parts = urlsplit(url)
        if scheme == "ssh":  # an invalid port raises; a password would appear in files and messages
            return bool(parts.hostname) and parts.port != 0 and parts.password is None and not parts.query
        return scheme in ("tcp", "http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


def _from_environment() -> Endpoint:
    url = os.environ.get("DOCKER_HOST", "")
    if not url:
        return Endpoint(f"unix://{DEFAULT_SOCKET}", implicit=True)
    if url.startswith("unix://") or not os.environ.get("DOCKER_TLS_VERIFY"):
        return Endpoint(url)
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or config_folder())
    tls = _tls(folder / "ca.pem", (folder / "cert.pem", folder / "key.pem"), verify=True)
    return Endpoint(url, tls, files=tuple(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))


def _stored(context: str) -> Endpoint:
    # These are the docker CLI's own files. The docker package reads them too, but takes 0.2 s to import, looks in the
    # current folder if there is no config.json, and silently drops an incomplete set of TLS files.
    digest = hashlib.sha256(context.encode()).hexdigest()
    root = config_folder() / "contexts"
    meta, certificates = root / "meta" / digest / "meta.json", root / "tls" / digest / "docker"
    try:
        found = json.loads(read_own(meta, _MOST_BYTES, follow=True))["Endpoints"]["docker"]
        url, skip = str(found["Host"]), found.get("SkipTLSVerify") is True
    except FileNotFoundError as error:
        raise ConfigError(
            f"no docker context is called {context!r}", hint="docker context ls shows the known ones"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"docker context {context!r} cannot be read: {error!r}", hint=f"docker context inspect {context}"
        ) from error
    tls = _stored_tls(context, certificates, skip=skip)
    files = (str(meta), *(str(certificates / f"{name}.pem") for name in ("ca", "cert", "key")))
    return Endpoint(url, tls, files=files)


def _stored_tls(context: str, folder: Path, *, skip: bool) -> ssl.SSLContext | None:
    ca, cert, key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
    if cert.exists() != key.exists():
        raise ConfigError(f"docker context {context!r} has incomplete TLS files", hint=f"cert and key in {folder}")
    if not (ca.exists() or cert.exists()):
        return None
    return _tls(ca if ca.exists() else None, (cert, key) if cert.exists() else None, verify=not skip)


def config_folder() -> Path:
    """The folder in which the docker CLI stores its config and contexts."""
    folder = os.environ.get("DOCKER_CONFIG")
    return Path(folder or os.path.expanduser("~/.docker"))  # noqa: PTH111 - Path.home() raises for a uid without an account


def _tls(ca: Path | None, client: tuple[Path, Path] | None, *, verify: bool) -> ssl.SSLContext:
    try:
        for path in filter(None, (ca, *(client or ()))):  # a pipe in place of one would hold the console up
            read_own(path, _MOST_BYTES, follow=True)
        tls_context = ssl.create_default_context(cafile=str(ca) if ca and verify else None)
        if not verify:
            tls_context.check_hostname = False
            tls_context.verify_mode = ssl.CERT_NONE
        if client:
            tls_context.load_cert_chain(*client)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"docker's TLS files cannot be used: {error}", hint="look at the paths it names") from error
    return tls_context
