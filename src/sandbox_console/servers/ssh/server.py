"""Serves one ssh client, which is at the other end of this process's standard input and output."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import asyncssh
from asyncssh.channel import SSHChannel

from sandbox_console.errors import ConsoleError
from sandbox_console.model.actor import acting_as
from sandbox_console.model.text import clean
from sandbox_console.servers.ssh import commands, shells
from sandbox_console.servers.ssh.commands import LOST, Process, note
from sandbox_console.servers.ssh.guest import Guest
from sandbox_console.servers.ssh.keys import KeyFolder, private
from sandbox_console.servers.ssh.ports import Ports, refused
from sandbox_console.servers.ssh.sftp import SftpServer
from sandbox_console.version import __version__

LOGIN_S = 30
"""How long the client may take to log in. It has the key, so it needs no person for that."""

OWN_FAILURE = 125
"""The exit code for failures of the console itself, as with ``exec``. ssh's own failures are 255."""

asyncssh.set_log_level("CRITICAL")  # its warnings would go to the user's terminal; failures are raised


class ClientRefused(ConsoleError):
    """The program at the other end is no ssh client, or did not log in."""

    code = "ssh_client"


async def serve(guest: Guest, keys: KeyFolder, sock: socket.socket, say: Callable[[str], None]) -> None:
    """Serve until the client leaves. ``say`` is for refusals that the protocol has no words for.

    Raises ClientRefused, ConfigError.
    """
    sessions = _Sessions(guest, keys.path, say)
    host_key = asyncssh.import_private_key(private(keys.host_key))
    user_key = asyncssh.import_private_key(private(keys.user_key)).convert_to_public()
    actor = f"ssh:{guest.console.audit_log.actor.partition(':')[2] or guest.console.audit_log.actor}"
    with acting_as(actor):
        connection = await _connected(guest, sessions, host_key, user_key, sock)
        try:
            await connection.wait_closed()
        finally:
            connection.abort()
            await sessions.end()


async def _connected(
    guest: Guest, sessions: _Sessions, host_key: asyncssh.SSHKey, user_key: asyncssh.SSHKey, sock: socket.socket
) -> asyncssh.SSHServerConnection:
    try:
        return await asyncssh.run_server(
            sock,
            server_factory=lambda: _Server(guest, sessions, user_key),
            sftp_version=3,
            server_host_keys=[host_key],
            server_version=f"sandbox-console-{__version__}",
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            compression_algs=["none"],  # the pipe is on this machine
            login_timeout=LOGIN_S,
        )
    except (OSError, asyncssh.Error, TimeoutError) as error:
        why = str(error) or type(error).__name__
        hint = "this is the ProxyCommand of: sandbox-console ssh-config"
        raise ClientRefused(f"no ssh client logged in on standard input: {why}", hint=hint) from None


class _Server(asyncssh.SSHServer):
    """Who may log in: whoever has the key in the console's own folder, under any name."""

    def __init__(self, guest: Guest, sessions: _Sessions, user_key: asyncssh.SSHKey) -> None:
        self._guest, self._sessions, self._user_key = guest, sessions, user_key

    def begin_auth(self, username: str) -> bool:
        self._guest.log_in(username)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002 - any user of the guest
        return key.public_data == self._user_key.public_data

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        async def no_agent() -> bool:
            self._sessions.say(f"-A is refused: {self._guest.sandbox.name} must not use your keys")
            return False

        async def no_display(*_: object) -> None:
            self._sessions.say(f"-X is refused: {self._guest.sandbox.name} must not see your screen")

        refusals = {"create_agent_listener": no_agent, "attach_x11_listener": no_display}
        vars(conn).update(refusals)  # asyncssh asks the connection, and nothing of ours

    def connection_requested(
        self, dest_host: str, dest_port: int, *_: object
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        """``-L``, ``-W`` and ``-D`` lead to ports of the sandbox."""
        return self._sessions.ports.session(dest_host, dest_port)

    def unix_connection_requested(self, dest_path: str) -> bool:
        raise refused(f"{dest_path} is not reached: only ports of {self._guest.sandbox.name} are, as localhost:PORT")

    def server_requested(self, listen_host: str, listen_port: int) -> bool:  # noqa: ARG002 - wherever
        """Refuse ``-R``: what comes out of the sandbox that way passes no egress rule."""
        self._sessions.say(f"-R is refused: it would lead from {self._guest.sandbox.name} past its egress rules")
        return False

    def unix_server_requested(self, listen_path: str) -> bool:
        return self.server_requested(listen_path, 0)

    def session_requested(self) -> asyncssh.SSHServerProcess[bytes]:
        return _Session(self._sessions)


class _Session(asyncssh.SSHServerProcess[bytes]):
    """One session, which knows whether its client has ended its input."""

    def __init__(self, sessions: _Sessions) -> None:
        super().__init__(sessions.serve, self._files, 3, allow_scp=False)
        self._sessions, self._ended = sessions, False

    def eof_received(self) -> bool:
        self._ended = True
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        super().connection_lost(exc)

    def _files(self, channel: SSHChannel[bytes]) -> asyncssh.SFTPServer:
        def say(text: str) -> None:
            with suppress(*LOST):
                channel.write(f"{clean(text)}\n".encode(), asyncssh.EXTENDED_DATA_STDERR)

        return SftpServer(self._sessions.guest, channel, self._sessions.spool, lambda: self._ended, say)


class _Sessions:
    """The sessions of one connection."""

    def __init__(self, guest: Guest, spool: Path, say: Callable[[str], None]) -> None:
        self.guest, self.spool, self.say = guest, spool, say
        self.ports = Ports(guest, say)
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, process: Process) -> None:
        """Serve one session to its end, and report its failure to the client."""
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        code = OWN_FAILURE
        try:
            code = await self._code(process)
        except ConsoleError as error:
            end = "\r\n" if process.term_type else "\n"
            note(process, f"error: {error.message}", end=end)
            if error.hint:
                note(process, f"hint: {error.hint}", end=end)
        finally:
            process.exit(code)

    async def _code(self, process: Process) -> int:
        if process.subsystem:
            note(process, f"error: the subsystem {process.subsystem!r} is not served")
            return OWN_FAILURE
        run = shells.run if process.term_type is not None else commands.run
        return await run(self.guest, process)

    async def end(self) -> None:
        """Wait until all have ended, once the client is gone."""
        await asyncio.gather(*self._open, self.ports.end(), return_exceptions=True)
