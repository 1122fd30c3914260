"""The options of ``sandbox-console serve``, and the addresses it answers to."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from sandbox_console.errors import UsageError
from sandbox_console.service.oidc_options import OidcOptions
from sandbox_console.web.environment import check_pass_env

HOUR_S = 3600.0
MEBIBYTE = 1024 * 1024

LOOPBACKS = {"127.0.0.1": "::1", "::1": "127.0.0.1"}
"""The loopback address of each family, with that of the other one. A name such as ``localhost`` means both."""


class ServeOptions(Struct, frozen=True):
    """The options of a browser server: where it listens, what it runs, and its limits (times in seconds)."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port; the address that is printed names it."""
    read_only: bool = False
    backend: str | None = None
    only_hosts: tuple[str, ...] = ()
    config: Path | None = None
    command: Sequence[str] | None = None
    """The Textual program to show, as an argument list; None shows the console itself."""
    token_file: Path | None = None
    """A file of mode 0600 that holds the login token; None makes one for a single login."""
    cert: Path | None = None
    key: Path | None = None
    """PEM files for TLS; `key` may be left out if `cert` contains both."""
    insecure_no_tls: bool = False
    """Listen beyond this machine even without TLS."""
    names: tuple[str, ...] = ()
    """Further host names that browsers may use, as behind a proxy or on a wildcard address."""
    pass_env: tuple[str, ...] = ()
    """Further environment variables that the app gets."""
    max_sessions: int = 8
    idle_s: float = HOUR_S
    """A visible session ends after this long without a key, click or resize."""
    resume_s: float = 8 * HOUR_S
    """An app that no page shows goes on for this long, so that a reload or another network finds it again."""
    prefix: str = ""
    """The path under which a proxy serves it, such as ``/console``."""
    trust_proxy: tuple[str, ...] = ()
    """Addresses of proxies whose ``X-Forwarded-Proto`` and ``X-Forwarded-For`` are believed."""
    user_header: str = ""
    """The header in which these proxies name the user; empty if they do not. From elsewhere it is ignored."""
    oidc: OidcOptions | None = None
    """A provider of OpenID Connect where people log in."""
    socket: Path | None = None
    """A socket file to listen on for a proxy, in place of an address."""
    open: bool = False
    """Open the printed link in the browser of this machine."""

    def check(self) -> None:
        """Raise UsageError if the options contradict each other or would expose the console."""
        check_pass_env(self.pass_env)
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port {self.port} is not between 0 and 65535", hint="leave --port out for a free one")
        self._check_limits()
        self._check_names()
        if self.key and not self.cert:
            raise UsageError("a key was given without its certificate", hint="add --cert FILE")
        if self.socket or is_loopback(self.host):
            return
        if not self.cert and not self.insecure_no_tls:
            raise UsageError(
                f"{self.host} can be reached from other machines, and there is no TLS",
                hint="give --cert and --key, or keep 127.0.0.1 and tunnel to it by ssh -L; "
                "--insecure-no-tls sends the login and every key in the clear",
            )
        if is_wildcard(self.host) and not self.names:
            raise UsageError(
                f"{self.host} is every address of this machine, so the name that browsers use is not known",
                hint="listen on one address, or add --hostname NAME",
            )

    def _check_limits(self) -> None:
        if self.max_sessions < 1:
            raise UsageError("--max-sessions: at least 1 is needed", hint="leave it out for 8")
        if self.idle_s <= 0:
            raise UsageError("--idle-timeout: it must be above 0", hint="as in 90s, 15m, 2h")
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise UsageError(f"--prefix: {self.prefix!r} is not a path", hint="as in /console")

    def _check_names(self) -> None:
        """Raise UsageError for an invalid host name, and for a proxy without a name."""
        for name in self.names:
            if not _is_host(name):
                raise UsageError(f"--hostname: {name!r} is not a host name", hint="as in console.example or host:8443")
        for address in self.trust_proxy:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                hint = "the address from which the proxy connects, as 127.0.0.1"
                raise UsageError(f"--trust-proxy: {address!r} is not an address", hint=hint) from None
        self._check_people()
        if not (self.trust_proxy or self.socket):
            return
        if not self.names:
            hint = "add --hostname NAME, the name in the browser's address bar"
            raise UsageError("behind a proxy the name that browsers use is not known", hint=hint)
        if self.socket and (self.cert or self.port):
            raise UsageError("--socket has no port and no TLS", hint="the proxy has them: leave --port and --cert out")

    def _check_people(self) -> None:
        if self.oidc is not None:
            self.oidc.check()
        if not self.user_header:
            return
        if not (self.trust_proxy or self.socket):
            hint = "add --trust-proxy ADDRESS or --socket PATH: from anybody else the header is ignored"
            raise UsageError("--user-header needs a proxy that is trusted", hint=hint)
        if not _HEADER.fullmatch(self.user_header) or self.user_header.lower() in _TAKEN_HEADERS:
            hint = "as X-Forwarded-User; the proxy must set it or remove it in every request"
            raise UsageError(f"--user-header: {self.user_header!r} cannot name users", hint=hint)

    @property
    def public_url(self) -> str:
        """The URL for browsers behind a proxy; empty without a proxy."""
        return f"https://{self.names[0].lower()}{self.prefix}" if self.trust_proxy or self.socket else ""

    @property
    def scheme(self) -> str:
        """``https`` if there is a certificate, else ``http``."""
        return "https" if self.cert else "http"

    @property
    def bind(self) -> str:
        """The address to listen on. Names of this machine mean 127.0.0.1."""
        return "127.0.0.1" if _is_local_name(self.host) else self.host

    def app_command(self) -> list[str]:
        """The argument list of the app, which does not pass through a shell."""
        if self.command is not None:
            return list(self.command)
        return console_command(
            config=self.config, backend=self.backend, read_only=self.read_only, only_hosts=self.only_hosts
        )

    @property
    def is_local_name(self) -> bool:
        """Whether the host is a name of this machine."""
        return _is_local_name(self.host)

    def authorities(self, port: int, *, both: bool = True) -> tuple[str, ...]:
        """The exact values of ``Host`` that are answered. The first one is printed.

        ``both`` says that no other program can have the loopback address of the other family.
        """
        names = [] if is_wildcard(self.host) else [self.host]
        names += [name for name in self.names if not _NAMED_PORT.search(name)]
        if self.bind in LOOPBACKS and both:
            names += ["127.0.0.1", "localhost", "console.localhost", "::1"]
        shown = [f"[{name}]" if ":" in name else name.lower() for name in names]
        default = {"http": 80, "https": 443}[self.scheme]
        plain = shown if port == default else []
        return tuple(dict.fromkeys([*plain, *(f"{name}:{port}" for name in shown)]))

    @property
    def proxied_authorities(self) -> tuple[str, ...]:
        """The values of ``Host`` that are answered when a trusted proxy passes them on."""
        return tuple(name.lower() for name in self.names) if self.trust_proxy or self.socket else ()


_PREFIX = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_TAKEN_HEADERS = frozenset(
    {
        "authorization",
        "cookie",
        "host",
        "origin",
        "referer",
        "user-agent",
        "x-forwarded-for",
        "x-forwarded-proto",
        "connection",
    }
)
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_NAMED_PORT = re.compile(r"(?:\]|^[^:]*):(\d{1,5})$")


def _is_host(name: str) -> bool:
    """Whether a name, with or without a port, can be used in a browser's address."""
    port = _NAMED_PORT.search(name)
    if port and not 0 < int(port[1]) < 65536:
        return False
    host = name[: port.start(1) - 1] if port else name
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return len(host) <= 253 and all(_LABEL.fullmatch(part) for part in host.split("."))
    return True


def console_command(
    *, config: Path | None, backend: str | None, read_only: bool, only_hosts: Sequence[str] = ()
) -> list[str]:
    """The argument list of the console itself."""
    # -P: the current folder may be a sandbox's workspace, and its modules must not be imported.
    words = [sys.executable, "-P", "-m", "sandbox_console"]
    words += ["--config", str(config.absolute())] if config else []
    words += ["--backend", backend] if backend else []
    words += [f"--host={host}" for host in only_hosts]
    return [*words, "--read-only"] if read_only else words


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if _is_local_name(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether an address stands for every address of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_local_name(host: str) -> bool:
    return host.lower() == "localhost" or host.lower().endswith(".localhost")
