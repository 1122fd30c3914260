"""``secrets``: shows, checks, defines and removes those of the configuration, but never shows a value."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import host_label
from sandbox_console.errors import ConsoleError, NotFound, SecretError, UsageError
from sandbox_console.service import Console, Leak, SecretInfo, SecretSource
from sandbox_console.service.effects.secret_definition import SecretDefinition

_MOST = 64 * 1024
_NONE = "no secret is defined in the config; define one: sandbox-console secrets add NAME"


async def secrets(context: Context) -> int:
    """Run ``ls``, ``add``, ``rm`` or ``check``. A check exits 1 if a secret cannot be read or has leaked."""
    args = context.args
    async with context.open() as console:
        match args.what:
            case "ls":
                return await _ls(context, console)
            case "add":
                return await _add(context, console)
            case "rm":
                return await _remove(context, console)
        return await (_leaks(context, console) if args.leaks else _check(context, console))


async def _listed(context: Context, console: Console) -> Sequence[SecretInfo]:
    secrets, silent = await console.secrets.listed()
    if silent:
        told = ", ".join(f"{host_label(one)} ({one.reason})" for one in silent)
        context.say(f"warning: which sandboxes use them is not known for {told}")
    if not secrets:
        context.say(_NONE)
    return secrets


async def _ls(context: Context, console: Console) -> int:
    secrets = await _listed(context, console)
    context.listing(("NAME", "FROM", "INJECT", "HOSTS", "USED BY"), secrets, _record, _cells)
    return 0


async def _add(context: Context, console: Console) -> int:
    args = context.args
    if args.inject not in (injects := ("auto", "env", "file", "placeholder")):
        raise UsageError(f"--inject {args.inject!r} is not known", hint=f"one of {', '.join(injects)}")
    value = await asyncio.to_thread(_value, context) if args.value else ""
    reference = args.source or (f"keyring:sandbox-console/{args.name}" if args.value else f"env:{args.name}")
    source = SecretSource(source=reference, inject=args.inject, hosts=tuple(args.host))
    await console.definitions.define(SecretDefinition(args.name, source, value), agreed=args.yes)
    if context.json:
        context.record({"name": args.name, "from": source.shown, "inject": args.inject, "hosts": args.host})
    else:
        context.text(f"{args.name} is defined as {source.shown}")
    return 0


def _value(context: Context) -> str:
    """The value from standard input, without its last newline. Raises UsageError if there is none."""
    if context.streams.stdin is None:
        hint = "pass show NAME | sandbox-console secrets add NAME --value"
        raise UsageError("--value reads the value from stdin, and there is none", hint=hint)
    with os.fdopen(os.dup(context.streams.stdin), "rb") as file:
        data = file.read(_MOST + 1)
    if not data or len(data) > _MOST:
        raise UsageError(f"stdin has {'no value' if not data else f'more than {_MOST} bytes'}")
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise UsageError("stdin is not UTF-8 text") from None


async def _remove(context: Context, console: Console) -> int:
    for name in context.args.names:
        try:
            await console.definitions.remove(name, agreed=context.args.yes)
        except ConsoleError as error:
            context.fail(error, name)
            continue
        if context.json:
            context.record({"name": name, "removed": True})
        else:
            context.text(f"{name} is no longer defined")
    return context.code


def _cells(secret: SecretInfo) -> tuple[str, ...]:
    return secret.name, secret.source, secret.inject, " ".join(secret.hosts) or "any", " ".join(secret.used_by) or "-"


def _record(secret: SecretInfo) -> dict[str, Any]:
    return {
        "name": secret.name,
        "from": secret.source,
        "kind": secret.kind,
        "inject": secret.inject,
        "hosts": list(secret.hosts),
        "used_by": list(secret.used_by),
    }


async def _check(context: Context, console: Console) -> int:
    listed = await _listed(context, console)
    secrets = [await console.secrets.checked(secret) for secret in await _chosen(context, listed)]
    if context.json:
        for secret in secrets:
            context.record(_record(secret) | {"ok": not secret.problem, "problem": secret.problem, "note": secret.note})
    elif secrets or not context.args.words:
        context.table(("NAME", "FROM", "OK", "WHY NOT"), (_checked(secret) for secret in secrets))
    for secret in secrets:
        if secret.problem:
            context.fail(SecretError(secret.problem, hint=secret.hint))
    return context.code


async def _chosen(context: Context, listed: Sequence[SecretInfo]) -> list[SecretInfo]:
    """The named secrets, or all. Reports names that are not defined. Raises UsageError for a path."""
    names = dict.fromkeys(context.args.words)
    known = {secret.name: secret for secret in listed}
    unknown = [name for name in names if name not in known]
    paths = await asyncio.to_thread(lambda: [name for name in unknown if Path(name).expanduser().exists()])
    if paths:
        hint = f"sandbox-console {shlex.join(['secrets', 'check', '--leaks', *paths])}"
        raise UsageError(f"secrets check takes a PATH only with --leaks: {paths[0]!r}", hint=hint)
    for name in unknown:
        context.fail(NotFound(f"no secret is called {name!r}", hint="sandbox-console secrets ls"))
    return [known[name] for name in names if name in known] if names else list(listed)


def _checked(secret: SecretInfo) -> tuple[str, ...]:
    return secret.name, secret.source, "no" if secret.problem else "ok", secret.problem or secret.note or "-"


async def _leaks(context: Context, console: Console) -> int:
    paths = [Path(text).expanduser() for text in context.args.words]
    if gone := await asyncio.to_thread(_missing, paths):
        raise UsageError(f"{gone[0]} does not exist", hint="name files and folders that exist")
    leaks: list[Leak] = []
    async for one in console.secrets.leaks(paths):
        if isinstance(one, Leak):
            leaks.append(one)
            if context.json:
                context.record(msgspec.to_builtins(one))
        elif context.json:
            context.record(msgspec.to_builtins(one))
        else:
            context.say(f"not looked into: {one.place}: {one.reason}")
    if not context.json:
        context.table(("SECRET", "FORM", "FINGERPRINT", "COUNT", "PLACE"), (_leak_cells(one) for one in leaks))
        context.say(f"{len(leaks)} places" if leaks else "nothing found")
    return 1 if leaks else 0


def _missing(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if not path.exists()]


def _leak_cells(leak: Leak) -> tuple[str, ...]:
    where = f"{leak.place}, line {leak.line}" if leak.line else leak.place
    return leak.secret or "-", leak.what, leak.fingerprint, str(leak.count), where
