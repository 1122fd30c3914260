"""Starts commands and shells beside a container's main process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker import secret_handover, shell
from sandbox_console.backends.docker.failures import about
from sandbox_console.backends.docker.hijacked_stream import Channel
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.backends.docker.process import DockerProcess, Execution
from sandbox_console.backends.docker.reaper import VARIABLE, Reaper, new_mark
from sandbox_console.errors import BackendError, ConsoleError, Unsupported, UsageError
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.secret import ResolvedSecret

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine


async def start_command(engine: Engine, request: Exec, secrets: Sequence[ResolvedSecret]) -> DockerProcess:
    """Start a command. Raises NotFound, Conflict (the container is not running), UsageError (no command)."""
    if not request.argv or not request.argv[0]:
        raise UsageError("a command is needed", hint="sandbox-console exec NAME -- CMD ARG...")
    body = {
        "Cmd": list(request.argv),
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Env": [f"{key}={value}" for key, value in request.env.items()],
        **({"WorkingDir": request.workdir} if request.workdir else {}),
    }
    return DockerProcess(await _execute(engine, request.ref.id, request.user, body, secrets, request.mark))


async def open_shell(engine: Engine, request: OpenShell, secrets: Sequence[ResolvedSecret]) -> shell.DockerTerminal:
    """Open a shell on a PTY of this size. Raises like :func:`start_command`; Unsupported if there is no shell."""
    with about(f"container {request.ref.id[:12]}"):
        path = request.shell or await shell.choose(engine, request.ref.id)
    body = {
        "Cmd": request.argv(path),
        "Tty": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Env": [f"TERM={request.term}", *(f"{name}={value}" for name, value in request.env.items())],
        "ConsoleSize": [request.rows, request.cols],  # the initial size, for engines from 23 on
    }
    if request.workdir:
        body["WorkingDir"] = request.workdir
    execution = await _execute(engine, request.ref.id, request.user, body, secrets, request.mark)
    terminal = shell.DockerTerminal(engine, execution)
    try:
        await _first_size(terminal, request)
    except BaseException:
        await run_to_completion(terminal.close())
        raise
    return terminal


async def _first_size(terminal: shell.DockerTerminal, request: OpenShell) -> None:
    # The upgrade is answered a few ms before the process exists, and a resize sent in between is refused.
    for _ in range(20):
        if await terminal.resized(request.cols, request.rows):
            return
        await asyncio.sleep(0.02)


async def _execute(
    engine: Engine, container: str, user: str | None, body: dict[str, Any], secrets: Sequence[ResolvedSecret],
    mark: str = "",
) -> Execution:  # fmt: skip
    secret_handover.check(secrets)
    await _write_files(engine, container, user, [secret for secret in secrets if secret.inject == "file"])
    mark = mark or new_mark()
    # The engine shows an exec's command line, never its environment, and stores neither on disk.
    variables = [f"{secret.name}={secret.value}" for secret in secrets if secret.inject == "env"]
    body = body | {"User": user or "", "Env": [*body["Env"], *variables, f"{VARIABLE}={mark}"]}
    return await _opened(engine, container, body, Reaper(engine, container, user or "", mark))


async def _opened(engine: Engine, container: str, body: dict[str, Any], reaper: Reaper) -> Execution:
    with about(f"container {container[:12]}"):
        made = await engine.call("POST", container_path(container, "exec"), body=body)
        tty = bool(body.get("Tty"))
        channel = Channel(engine, engine.execution(made["Id"], tty=tty))
        execution = Execution(engine, made["Id"], channel, reaper, container, tty=tty)
        try:
            await execution.open()
        except asyncio.CancelledError:
            await run_to_completion(execution.end())  # it may already run, and nobody would have a handle for it
            raise
    return execution


async def _write_files(engine: Engine, container: str, user: str | None, secrets: list[ResolvedSecret]) -> None:
    """Write secret files, to memory only. Raises Unsupported if /run/secrets would be on a disk."""
    if not secrets:
        return
    with about(f"container {container[:12]}"):
        data = await engine.call("GET", container_path(container, "json"))
    if not {"/run", secret_handover.FOLDER} & (data["HostConfig"].get("Tmpfs") or {}).keys():
        raise Unsupported(
            "this container has no tmpfs at /run, so a secret file would be written to a disk",
            hint='set inject = "env" for the secret',
        )
    body = {"Cmd": secret_handover.file_writer(), "AttachStdin": True, "AttachStdout": True, "AttachStderr": True}
    writer = await _opened(engine, container, body | {"User": user or ""}, Reaper(engine, container, "", new_mark()))
    try:
        await writer.channel.write(secret_handover.payload(secrets))
        writer.channel.end_input()
        message = b""
        while (chunk := await writer.read()) is not None:
            message += chunk[1]
        if (await writer.wait()).code != 0:
            raise BackendError(f"secret files could not be written: {message.decode('utf-8', 'replace').strip()}")
    finally:
        with suppress(ConsoleError):
            await writer.channel.close()
