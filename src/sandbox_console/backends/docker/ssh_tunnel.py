"""Reaches an engine over ssh: one connection per context, with the remote socket forwarded to a local one.

asyncssh reads what ssh reads: known_hosts, the agent, and from ~/.ssh/config Host, HostName, User, Port, IdentityFile
and ProxyJump. No session is opened and no environment is sent: the connection carries forwarded sockets only. This
module is imported when a context has an address with ``ssh://``.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncssh
from msgspec import Struct

from sandbox_console.backends.docker.failures import Unusable, engine_prefix
from sandbox_console.backends.docker.ssh_places import places
from sandbox_console.errors import BackendUnreachable

LOGIN_S = 8.0
"""Seconds that a connection and its login may take, including each jump."""

ALIVE_S, MISSED = 2, 2
"""A peer that does not answer two checks, sent every two seconds, is lost: a frozen one after 4 to 6 s."""

_REMOTE_SOCKET = "/var/run/docker.sock"
_FOLDER = "sandbox-console-ssh-"
_SHORT = 50
"""Bytes left for the folder's path: a Unix socket's path is at most 107 bytes long, on macOS 103."""
_LONGEST = 300
"""How many characters are shown of an error message from the other side."""
_NUMBER = re.compile(r"\[Errno (\d+)\]")

asyncssh.set_log_level("CRITICAL")  # its warnings would be printed over the screen, and failures are raised


class Address(Struct, frozen=True):
    """``ssh://[USER@]HOST[:PORT][/PATH]``; HOST may be an alias of ~/.ssh/config, PATH is the engine's socket there."""

    host: str
    user: str | None
    port: int | None
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse an address. Raises ValueError if there is no host, or the port is not a number."""
        parts = urlsplit(url)
        if not parts.hostname or parts.password is not None or parts.query or parts.fragment:
            raise ValueError(url)
        # urlsplit lowercases the host, and the aliases of ~/.ssh/config are case-sensitive.
        host = parts.netloc.rpartition("@")[2]
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return cls(host, parts.username, parts.port, parts.path.rstrip("/") or _REMOTE_SOCKET)

    @property
    def login(self) -> str:
        """``HOST`` or ``USER@HOST``, as ssh takes it."""
        return f"{self.user}@{self.host}" if self.user else self.host


class SshTunnel:
    """An open connection to the host of an engine. ``socket`` is a local path that leads to the engine there."""

    def __init__(self, connection: asyncssh.SSHClientConnection, folder: Path) -> None:
        self.socket = str(folder / "docker.sock")
        self._connection = connection
        self._folder = folder

    @property
    def lost(self) -> bool:
        """Whether the connection has ended, by either side or by silence."""
        return self._connection.is_closed()

    async def close(self) -> None:
        """End the connection and remove the local socket."""
        self._connection.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        with suppress(asyncssh.Error, OSError, TimeoutError):
            async with asyncio.timeout(1):  # a frozen peer never answers
                await self._connection.wait_closed()
        self._connection.abort()


def login_files(url: str) -> Iterator[Path]:
    """Yield each file that the login reads or runs, before it is read. A damaged configuration ends the list."""
    address = Address.parse(url)
    with suppress(asyncssh.ConfigParseError, OSError, ValueError):  # the login itself reports it
        yield from places(address.host, address.user, address.port)


async def open_tunnel(context: str, url: str) -> SshTunnel:
    """Log in and forward the engine's socket. Raises BackendUnreachable with the reason and a hint."""
    address = Address.parse(url)
    try:
        async with asyncio.timeout(LOGIN_S):
            connection = await _connect(address)
            return await _forward(connection, address)
    except Exception as error:
        raise _translated(context, address, error) from error


async def _connect(address: Address) -> asyncssh.SSHClientConnection:
    chosen = {"username": address.user, "port": address.port}
    return await asyncssh.connect(
        address.host,
        **{name: value for name, value in chosen.items() if value is not None},
        # Nobody can answer a prompt, so only methods without typing are used, as with `ssh -o BatchMode=yes`.
        preferred_auth="gssapi-keyex,gssapi-with-mic,publickey",
        keepalive_interval=ALIVE_S,
        keepalive_count_max=MISSED,
    )


async def _forward(connection: asyncssh.SSHClientConnection, address: Address) -> SshTunnel:
    folder = await asyncio.to_thread(_private_folder)
    tunnel = SshTunnel(connection, folder)
    try:
        # A forwarded socket accepts connections whatever is at its other end, so check once that an engine answers.
        _, writer = await connection.open_unix_connection(address.path)
        writer.close()
        await connection.forward_local_path(tunnel.socket, address.path)
    except BaseException:
        await tunnel.close()
        raise
    return tunnel


def _private_folder() -> Path:
    """A private folder, named after this process. Those of killed processes are removed."""
    places = (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp")  # noqa: S108 - mkdtemp is safe there
    base = Path(next(place for place in places if 0 < len(os.fsencode(place)) <= _SHORT))
    for left in base.glob(f"{_FOLDER}*"):
        pid = left.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and left.lstat().st_uid == os.getuid() and not _alive(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=base))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _translated(context: str, address: Address, error: Exception) -> BackendUnreachable:
    reason, hint = _reason(address, error)
    mine = isinstance(error, (asyncssh.ConfigParseError, asyncssh.KeyImportError))
    return (Unusable if mine else BackendUnreachable)(engine_prefix(context) + reason, hint=hint)


def _reason(address: Address, error: Exception) -> tuple[str, str]:
    host, message = address.host, str(error)[:_LONGEST]
    ssh = f"ssh -p {address.port} {address.login}" if address.port else f"ssh {address.login}"
    match error:
        case asyncssh.HostKeyNotVerifiable():
            reason = f"the host key of {host} is not in known_hosts, or differs from the one in there"
            return reason, f"compare the key and accept it once: {ssh}"
        case asyncssh.PermissionDenied():
            reason = f"{host} refused the login: it accepted no key of yours"
            return reason, f"make sure that this works without a question: {ssh} -o BatchMode=yes true"
        case asyncssh.ChannelOpenError():  # OpenSSH returns one code and no reason for all three
            reason = f"no engine answers at {host}:{address.path}, or you may not open it, or sshd forwards no sockets"
            return reason, "start the engine, join the group docker there, or set AllowStreamLocalForwarding yes"
        case asyncssh.ConfigParseError() | asyncssh.KeyImportError():
            return f"the ssh configuration cannot be used: {message}", "look at ~/.ssh/config"
        case TimeoutError():
            return f"{host} did not answer over ssh in {LOGIN_S:g} s", f"try it: {ssh} true"
        case OSError():
            return f"{host} cannot be reached over ssh: {_plain(error)}", f"try it: {ssh} true"
        case _:
            return f"the ssh connection to {host} failed: {message}", f"try it: {ssh} true"


def _plain(error: OSError) -> str:
    """The text for an errno, or for several. asyncio's own texts name the call, such as "Connect call failed"."""
    numbers = [int(found) for found in _NUMBER.findall(str(error))] or [error.errno or 0]
    words = dict.fromkeys(os.strerror(number).lower() for number in numbers if number > 0)
    return ", ".join(words) or error.strerror or str(error)[:_LONGEST]
