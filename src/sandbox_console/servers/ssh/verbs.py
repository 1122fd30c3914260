"""``proxy`` and ``ssh-config``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import find
from sandbox_console.errors import Conflict, UsageError
from sandbox_console.model.sandbox import Status
from sandbox_console.servers.ssh.host_block import SUFFIX, host_block, write
from sandbox_console.servers.ssh.keys import KeyFolder
from sandbox_console.service import find_paths, known_ground


async def proxy(context: Context) -> int:
    """Speak ssh on standard input and output until the client leaves."""
    source, target = context.streams.stdin, sys.stdout.fileno()
    if source is None or os.isatty(source) or os.isatty(target):
        raise UsageError("proxy speaks ssh, which is not for a terminal", hint=f"ssh {context.args.name}{SUFFIX}")
    async with context.open() as console:
        # not before: asyncssh runs programs of PATH to find libraries, and now no guest's are in it
        from sandbox_console.servers.ssh.guest import Guest
        from sandbox_console.servers.ssh.pipe import one_socket
        from sandbox_console.servers.ssh.server import serve

        sandbox = await find(context, console, context.args.name.removesuffix(SUFFIX), changing=True)
        if not sandbox.status.live and sandbox.status is not Status.UNKNOWN:
            hint = f"sandbox-console start {sandbox.name}"
            raise Conflict(f"{sandbox.name} is not running: it is {sandbox.status}", hint=hint)
        keys = _keys(context)

        def say(text: str) -> None:
            context.say(f"sandbox-console: {text}")

        async with one_socket(source, target) as sock:
            await serve(Guest(console, sandbox, context.consent(sandbox.ref.id)), keys, sock, say)
    return 0


async def ssh_config(context: Context) -> int:
    """Print the Host block, or write it into a file. Makes the keys that it names."""
    guest_folders = known_ground(Path(context.args.config) if context.args.config else None)
    block = host_block(_keys(context), _command(context))
    if context.args.write is None:
        if context.json:
            context.record({"config": block})
        else:
            context.streams.out.write(block.encode())
        return 0
    file = Path(context.args.write or "~/.ssh/config")
    write(block, file, guest_folders)
    context.say(f"written to {file}; now: ssh NAME{SUFFIX}")
    return 0


def _keys(context: Context) -> KeyFolder:
    paths = find_paths(Path(context.args.config) if context.args.config else None)
    paths.make_private()
    keys = KeyFolder(paths.state)
    keys.make()
    return keys


def _command(context: Context) -> list[str]:
    """The command that runs this program, with the options of this call, wherever and by whomever it is started.

    ``-P`` keeps the folder in which ssh runs out of the places from which Python imports.
    """
    args, home = context.args, os.environ.get("SANDBOX_CONSOLE_HOME")
    command = ["env", f"SANDBOX_CONSOLE_HOME={Path(home).absolute()}"] if home else []
    command += [sys.executable, "-P", "-m", "sandbox_console"]
    config = args.config or os.environ.get("SANDBOX_CONSOLE_CONFIG")
    command += ["--config", str(Path(config).absolute())] if config else []
    command += ["--backend", args.backend] if args.backend else []
    command += [f"--host={host}" for host in args.on_hosts]
    return [*command, *(["--read-only"] if args.read_only else []), *(["--yes"] if args.yes else [])]
