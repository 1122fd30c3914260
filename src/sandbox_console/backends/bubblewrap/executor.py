"""Starts commands and shells beside a sandbox's main process, through its supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox_console.backends.base import Process, Secrets, Terminal
from sandbox_console.backends.bubblewrap import jail, translate
from sandbox_console.backends.bubblewrap.client import Connection
from sandbox_console.backends.bubblewrap.process import Command, Shell
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.errors import Unsupported
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.shells import SHELLS


async def start_command(record: Record, request: Exec, secrets: Secrets) -> Process:
    """Start a command in a running sandbox. Raises Unsupported for a user that it does not have, BackendError."""
    env = jail.environment(record.spec, secrets) | dict(request.env)
    order = _request(record, [list(request.argv)], env, request.user, request.workdir, secrets)
    connection = await Connection.open(record.folder, record.spec.name)
    return await Command.start(connection, order, record.spec.name)


async def open_shell(record: Record, request: OpenShell, secrets: Secrets) -> Terminal:
    """Open a shell on a PTY of this size: the requested one, or the best in the image. Raises as `start_command`."""
    shells = [request.argv(path) for path in ([request.shell] if request.shell else SHELLS)]
    env = jail.environment(record.spec, secrets) | {"TERM": request.term} | dict(request.env)
    order = _request(record, shells, env, request.user, request.workdir, secrets)
    order["tty"] = [request.cols, request.rows]
    connection = await Connection.open(record.folder, record.spec.name)
    return await Shell.start(connection, order, record.spec.name)


def _request(
    record: Record, candidates: Sequence[Sequence[str]], env: dict[str, str], user: str | None,
    workdir: str | None, secrets: Secrets,
) -> dict[str, Any]:  # fmt: skip
    root = translate.jail_root(record)
    mine = jail.identity(record.spec.user, root)
    if user and user not in (mine[0], str(mine[1]), f"{mine[1]}:{mine[2]}"):
        raise Unsupported(
            f"exec.user: {record.spec.name} has one user, {mine[0]} ({mine[1]})",
            hint="bubblewrap maps a single user; create a sandbox with user set",
        )
    files = {one.name: one.value for one in secrets if one.inject == "file"}
    workdir = workdir or jail.workdir_of(record.spec)
    return {"candidates": candidates, "env": env, "workdir": workdir, "secrets": files}
