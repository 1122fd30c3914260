"""``bundle``: makes a file of evidence about sandboxes, or checks one that somebody made."""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, BinaryIO

import msgspec

from sandbox_console.cli.context import Context, Opener
from sandbox_console.cli.formatting import moment, size
from sandbox_console.cli.logs import when
from sandbox_console.cli.lookup import find_named
from sandbox_console.errors import Conflict, ConsoleError, UsageError
from sandbox_console.hostfs.files import NewFile, opened, read_small
from sandbox_console.model.bundle import BundleCheck, Manifest
from sandbox_console.model.quantities import parse_size_mib
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console, known_ground
from sandbox_console.service.incident.bundle import WrittenBundle
from sandbox_console.service.incident.bundle import bundle as make_bundle
from sandbox_console.service.incident.bundle_file import writer
from sandbox_console.service.incident.bundle_open import open_bundle
from sandbox_console.service.incident.bundle_verify import verify as verify_bundle

_PEM_MOST = 4096
_READS = ("verify",)


async def bundle(context: Context) -> int:
    """Make or check a bundle. With ``-o`` the words are NAMEs, so that a sandbox may be called ``verify``."""
    words = context.args.words
    if context.args.output is not None:
        return await _make(context)
    if words[0] not in _READS:
        raise UsageError("a bundle needs a file to go to", hint="sandbox-console bundle NAME... -o FILE")
    if len(words) != 2:
        raise UsageError(f"bundle {words[0]} takes one FILE", hint=f"sandbox-console bundle {words[0]} FILE")
    return await asyncio.to_thread(_verify, context, words[1])


def opener(args: argparse.Namespace) -> Opener:
    """A function that opens the bundle that the words name, for the app. Raises UsageError."""
    if len(args.words) != 2:
        raise UsageError("bundle open takes one FILE", hint="sandbox-console bundle open FILE")

    @asynccontextmanager
    async def opened_bundle(**_: object) -> AsyncIterator[Console]:
        with _bundle_file(args.words[1]) as file:
            async with open_bundle(file) as console:
                yield console

    return opened_bundle


async def _make(context: Context) -> int:
    args = context.args
    now = context.now()
    until = now if args.until is None else min(now, when(args.until, now))
    files_most = _files_most(args.files)
    async with context.open() as console:
        sandboxes = await find_named(context, console, context.args.words, changing=False)
        if sandboxes:
            made = await _write(context, console, sandboxes, until, files_most)
            _tell(context, made, sandboxes)
    return context.code


def _files_most(text: str) -> int:
    try:
        return 0 if text == "0" else parse_size_mib(text) << 20
    except ValueError as error:
        raise UsageError(f"--files: {error}", hint="as in 512K, 4M; 0 takes no files") from None


async def _write(
    context: Context, console: Console, sandboxes: list[Sandbox], until: float, files_most: int
) -> WrittenBundle:
    """Write a new file of mode 0600, whole or not at all. Raises Conflict, ConsoleError."""
    path = context.args.output
    try:
        file = await asyncio.to_thread(NewFile, path, await console.ground())
    except FileExistsError:
        raise Conflict(f"{path} exists already", hint="name a new file") from None
    except OSError as error:
        raise ConsoleError(f"{path} cannot be written: {error.strerror}") from None

    try:
        made = await make_bundle(
            console, sandboxes, writer(file, path), until=until, files_most=files_most,
            consent=lambda sandbox: context.consent(sandbox.ref.id),
        )  # fmt: skip
        if len(made.failures) < len(sandboxes):
            await asyncio.to_thread(file.keep)
    except OSError as error:
        raise ConsoleError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        file.drop()
    return made


def _tell(context: Context, made: WrittenBundle, sandboxes: list[Sandbox]) -> None:
    for sandbox in sandboxes:
        if (failure := made.failures.get(sandbox.ref)) is not None:
            context.fail(failure, sandbox.name if len(sandboxes) > 1 else "")
    if len(made.failures) == len(sandboxes):
        return
    if context.json:
        ids = {str(ref): seq for ref, seq in made.rows.items()}
        context.record({"file": context.args.output, "bytes": made.bytes, "audit_ids": ids, **_data(made.manifest)})
        return
    manifest = made.manifest
    context.text(
        f"{context.args.output}: {_count(len(made.rows), 'sandbox', 'es')}, {_count(len(manifest.parts), 'part')}, "
        f"{_count(manifest.rows, 'audit row')}, {_count(manifest.redacted, 'masked secret')}, {size(made.bytes)}"
    )
    _tell_missing(context, manifest)


def _tell_missing(context: Context, manifest: Manifest) -> None:
    for one in manifest.sandboxes:
        for gone in one.missing:
            context.say(f"not in it: {one.name}: {gone.part}: {gone.why}")
        if one.withheld:
            context.say(f"not in it: {one.name}: {_count(one.withheld, 'value')} of environment variables")
    for gone in manifest.missing:
        context.say(f"not in it: {gone.part}: {gone.why}")


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _data(manifest: Manifest) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(manifest)
    return data | {"parts": len(manifest.parts)}


def _verify(context: Context, name: str) -> int:
    """Check a file without a console, because there may be none on this machine."""
    guest_folders = known_ground()
    try:
        key = context.args.public_key
        pem = read_small(key, guest_folders, _PEM_MOST) if key else None
    except OSError as error:
        raise UsageError(f"--public-key: {key} cannot be read: {error.strerror}") from None
    with _bundle_file(name) as file:
        check = verify_bundle(file, pem)
    _tell_check(context, check)
    return 0 if check.ok else 1


@contextmanager
def _bundle_file(name: str) -> Iterator[BinaryIO]:
    """Open a bundle for reading. Raises UsageError if it is not a file or cannot be read."""
    try:
        with opened(name, known_ground()) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{name} is not a file", hint="save the bundle to a file first")
            yield file
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None


def _tell_check(context: Context, check: BundleCheck) -> None:
    if context.json:
        data = _data(check.manifest) if check.manifest else {}
        context.record({
            "ok": check.ok, "problem": check.problem, "bytes": check.bytes, "key": check.key,
            "cannot_know": list(check.limits), **data,
        })  # fmt: skip
        return
    manifest = check.manifest
    if not check.ok or manifest is None:
        context.text(f"BROKEN: {check.problem}")
        return
    parts, rows = _count(len(manifest.parts), "part"), _count(manifest.rows, "audit row")
    context.text(f"ok: {parts}, {rows}, {_count(manifest.redacted, 'masked secret')}, {size(check.bytes)}")
    context.text(f"made by {manifest.actor}, version {manifest.version}, evidence until {moment(manifest.until)}")
    for one in manifest.sandboxes:
        context.text(f"{one.folder}  {one.name}  {one.ref}")
    context.text(f"key {check.key}")
    _tell_missing(context, manifest)
    for limit in check.limits:
        context.say(f"it cannot know: {limit}")
