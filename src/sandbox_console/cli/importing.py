"""``import``: makes a spec of a docker run line, a compose service, a devcontainer.json or a sandbox."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import chosen_host, follow
from sandbox_console.cli.lookup import find
from sandbox_console.cli.selection import confirm
from sandbox_console.cli.spec_options import read_text
from sandbox_console.errors import ConsoleError, InvalidSpec, UsageError
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.model import check
from sandbox_console.model.action import Create
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Consent, Console
from sandbox_console.service.imports.compose import read_compose
from sandbox_console.service.imports.container import read_sandbox
from sandbox_console.service.imports.devcontainer import read_devcontainer
from sandbox_console.service.imports.docker_run import read_docker_run
from sandbox_console.service.imports.imported import Imported, name_from
from sandbox_console.service.sandbox_file import beyond

_DEVCONTAINERS = (".devcontainer/devcontainer.json", ".devcontainer.json")


async def import_(context: Context) -> int:
    """Print the spec as TOML, or with ``--json`` with what is left; ``--create`` creates it as well."""
    args = context.args
    if args.command is not None and args.what != "docker-run":
        raise UsageError(f"import {args.what} takes no command after --")
    async with context.open() as console:
        imported = await _read(context, console)
        if args.rename is not None:
            imported.fields["name"] = args.rename
        image = str(imported.fields.get("image", "")).rpartition("/")[2].partition("@")[0].partition(":")[0]
        imported.fields.setdefault("name", name_from(image))
        spec, problems = _checked(imported)
        if context.json and not args.create:
            _print_json(context, imported, problems)
        else:
            _print_left(context, imported, problems)
        if args.create:
            return await _create(context, console, spec, problems)
    if not context.json:
        for line in tomli_w.dumps(spec.to_dict() if spec else _plain(imported.fields)).splitlines():
            context.text(line)
    return 0


async def _read(context: Context, console: Console) -> Imported:
    args = context.args
    match args.what:
        case "docker-run":
            return read_docker_run(args.command if args.command is not None else _line(), Path.cwd())
        case "sandbox":
            return await _sandbox(context, console)
    guest_folders = await console.ground()
    if args.what == "compose":
        return await asyncio.to_thread(_compose, Path(args.file), args.service, guest_folders)
    return await asyncio.to_thread(_devcontainer, args.file, guest_folders)


def _line() -> list[str]:
    """The words of the line on stdin, as a shell splits them. Nothing is expanded."""
    try:
        return shlex.split(read_text("-", NOBODYS).replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"the line cannot be split into words: {error}") from None


def _compose(path: Path, service: str, guest_folders: GuestFolders) -> Imported:
    text = read_text(str(path), guest_folders)
    return read_compose(path, text, service, lambda file_path: read_text(str(file_path), guest_folders), os.environ)


def _devcontainer(name: str, guest_folders: GuestFolders) -> Imported:
    path = Path(name) if name else next((Path(one) for one in _DEVCONTAINERS if Path(one).exists()), None)
    if path is None:
        raise UsageError("there is no devcontainer.json in this folder", hint="name the file")
    return read_devcontainer(path.absolute(), read_text(str(path), guest_folders))


async def _sandbox(context: Context, console: Console) -> Imported:
    sandbox = await console.inspect((await find(context, console, context.args.name, changing=False)).ref)
    raw: Mapping[str, Any] | None = None
    if sandbox.spec is None:
        with suppress(ConsoleError):  # read_sandbox says that nothing is known
            raw = await console.inside.raw(sandbox.ref)
    return read_sandbox(sandbox, raw)


def _checked(imported: Imported) -> tuple[SandboxSpec | None, Mapping[str, str]]:
    """The spec, None if a field has the wrong type, and what is wrong with it."""
    try:
        spec = SandboxSpec.from_dict(imported.fields)
    except UsageError as error:
        return None, getattr(error, "problems", {"spec": error.message})
    problems = check.problems(spec)
    return spec, problems if spec.image else {**problems, "image": "there is none: name an image"}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _print_json(context: Context, imported: Imported, problems: Mapping[str, str]) -> None:
    left = [{"what": source, "why": reason} for source, reason in imported.left]
    context.record({"spec": _plain(imported.fields), "left": left, "problems": dict(problems)})


def _print_left(context: Context, imported: Imported, problems: Mapping[str, str]) -> None:
    for source, reason in imported.left:
        context.say(f"left: {source}: {reason}")
    for field, reason in problems.items():
        context.say(f"problem: {field}: {reason}")


async def _create(context: Context, console: Console, spec: SandboxSpec | None, problems: Mapping[str, str]) -> int:
    """Create it, after a question about what it may do on this machine."""
    if spec is None or problems:
        raise InvalidSpec(problems)
    asks = list(beyond(spec, None, Path.cwd()))
    if spec.workspace and not any(spec.workspace in one for one in asks):
        asks.append(f"it may write {spec.workspace}")
    if asks:
        await confirm(context, asks, f"{spec.name}:")
    backend, host = await _place(context, console)
    if not context.args.only_answering:
        await console.refuse_held(spec.name)
    given = context.consent()
    consent = Consent(given.yes or bool(asks), given.confirm)
    result = await follow(context, console.perform(Create(spec, backend, host), consent=consent))
    if context.json and result.ref is not None:
        context.record(json_output.sandbox(await console.inspect(result.ref)) | {"audit_id": result.audit_id})
    else:
        context.text(spec.name)
    return 0


async def _place(context: Context, console: Console) -> tuple[str, str]:
    """Where to create it: beside the sandbox that it was read from, unless ``--backend`` is given."""
    if context.args.what != "sandbox" or context.args.backend:
        return await chosen_host(context, console)
    ref = (await find(context, console, context.args.name, changing=False)).ref
    return ref.backend, ref.host
