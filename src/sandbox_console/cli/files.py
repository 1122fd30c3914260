"""``cp``: copies files and folders into and out of sandboxes, by the rules of docker cp."""

from __future__ import annotations

import argparse
import asyncio
import os
import posixpath
import stat
import tarfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from sandbox_console.cli import json_output, lookup
from sandbox_console.cli.context import Context, OutputClosed
from sandbox_console.cli.formatting import size
from sandbox_console.cli.stdin import chunks
from sandbox_console.errors import Conflict, ConsoleError, NotFound, UsageError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.tar_notes import TarNotes
from sandbox_console.hostfs.tar_pack import PackOptions, packed, unreadable
from sandbox_console.hostfs.tar_unpack import Unpacker
from sandbox_console.hostfs.walk import Location, find
from sandbox_console.model.action import Download, Upload
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import ActionResult, Console, ExecIO, Operation

_EVERY_S = 0.2
_SKIPPED_TOLD = 10
_SKIPPED_LISTED = 1000
_HINT = "sandbox-console cp NAME:/PATH PATH, or cp PATH NAME:/PATH; - is a tar on stdin or stdout"


class Words(Struct, frozen=True):
    """The two operands: the sandbox, its path, the path here (``-`` is a tar), and the direction."""

    name: str
    inside: str
    local: str
    out: bool


async def cp(context: Context) -> int:
    """Copy. A guest's links lead only to places in the sandbox, and its archives are unpacked by strict rules.

    Returns 1 if something was left out, and names it.
    """
    words = operands(context.args)
    copy = _Copy(context, words)
    try:
        async with context.open() as console:
            sandbox = await lookup.find(context, console, words.name, changing=True)
            sandbox = await lookup.within(context, console, sandbox)
            result = await (copy.fetch(console, sandbox) if words.out else copy.send(console, sandbox))
            if copy.skipped:  # a guest chose these names
                copy.skipped = list(map(await console.inside.mask(sandbox.ref), copy.skipped))
    finally:
        await copy.end()
    return copy.tell(sandbox, result)


def operands(args: argparse.Namespace) -> Words:
    """Find which operand is in a sandbox; one that begins with ``/`` or ``.`` is on this machine. Raises UsageError."""
    source, target = (_split(word) for word in (args.source, args.target))
    if source and target:
        raise UsageError("both paths are in a sandbox", hint="copy out, then in")
    if not source and not target:
        raise UsageError("neither path is in a sandbox", hint=_HINT)
    name, inside = source or target or ("", "")
    return Words(name, inside, args.target if source else args.source, bool(source))


def _split(word: str) -> tuple[str, str] | None:
    name, colon, path = word.partition(":/")
    return (name, f"/{path}") if colon and name and not word.startswith(("/", ".")) else None


_SPECIAL = "is neither a file, a folder nor a link"


class _Copy:
    """One copy: its progress, what it left out, and its end."""

    def __init__(self, context: Context, words: Words) -> None:
        self._context, self._words = context, words
        self._progress = _Progress(context)
        self.skipped: list[str] = []
        self._unpacker: Unpacker | None = None
        self._notes = TarNotes(self._skip)
        self._closed = False

    async def fetch(self, console: Console, sandbox: Sandbox) -> ActionResult:
        """Copy out of the sandbox."""
        path, here = self._words.inside, self._words.local
        contents = path.endswith("/.")
        path = path.rstrip("/") if path.strip("/") and not contents else path[:-2] if contents else path
        if here == "-":
            if self._context.streams.out.tty:
                raise UsageError("a tar archive cannot go to a terminal", hint="use a pipe: ... | tar -t")
            return await self._perform(console, sandbox, Download(sandbox.ref, path or "/"), self._to_stdout)
        info = await console.inside.stat(sandbox.ref, path or "/")
        if info.kind is FileKind.OTHER:
            raise UsageError(f"{path} {_SPECIAL}", hint=f"sandbox-console exec {sandbox.name} -- cat {path}")
        self._progress.total = info.size if info.kind is FileKind.FILE else None
        if self._context.args.follow_link:
            path = await _followed(console, sandbox, path)
        guest_folders = await console.ground()
        self._unpacker = Unpacker(
            lambda first: _place_here(here, path, first, guest_folders, contents=contents),
            self._skip,
            guest_folders,
            path or "/",
        )
        result = await self._perform(console, sandbox, Download(sandbox.ref, path or "/"), self._unpacker.give)
        await self._unpacker.finish()
        return result

    async def send(self, console: Console, sandbox: Sandbox) -> ActionResult:
        """Copy into the sandbox."""
        here = self._words.local
        if here == "-":
            if (fd := self._context.streams.stdin) is None or os.isatty(fd):
                raise UsageError(
                    "a tar is needed on stdin", hint=f"tar -c PATH | sandbox-console cp - {self._words.name}:/PATH"
                )
            return await self._perform(
                console, sandbox, Upload(sandbox.ref, self._words.inside), None, chunks(self._context.streams.stdin)
            )
        args = self._context.args
        order = PackOptions(await console.ground(), self._skip, args.follow_link, args.archive)
        with await asyncio.to_thread(_source, here, order) as source:
            if not source.is_folder:
                self._progress.total = 0 if source.is_link else source.what.st_size if source.what else None
            path, name = await _place_inside(console, sandbox, self._words.inside, here, folder=source.is_folder)
            tar = packed(source, name, order)
            return await self._perform(console, sandbox, Upload(sandbox.ref, path), None, tar)

    async def _perform(
        self, console: Console, sandbox: Sandbox, action: Upload | Download, give: Callable[[bytes], Any] | None,
        source: AsyncGenerator[bytes, None] | None = None,
    ) -> ActionResult:  # fmt: skip
        async def output(_: Stream, chunk: bytes) -> None:
            assert give is not None  # noqa: S101 - an upload has no output
            await give(chunk)
            self._progress.add(len(chunk))

        io = ExecIO(self._counted(source) if source else None, output)
        self._operation = console.perform(action, consent=self._context.consent(sandbox.ref.id), io=io)
        try:
            return await self._operation.result()
        except asyncio.CancelledError:
            if self._closed:
                raise OutputClosed from None
            raise

    _operation: Operation

    async def _counted(self, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in source:
            yield chunk
            self._progress.add(len(chunk))

    async def _to_stdout(self, chunk: bytes) -> None:
        try:
            await self._context.streams.out.stream(chunk)
            self._notes.feed(chunk)
        except OutputClosed:
            self._closed = True
            self._operation.cancel()

    def _skip(self, reason: str) -> None:
        self.skipped.append(reason)

    async def end(self) -> None:
        """End the copy, and leave no thread, no partial copy and no partial line."""
        if self._unpacker is not None:
            await self._unpacker.abandon()
        self._progress.end()

    def tell(self, sandbox: Sandbox, result: ActionResult) -> int:
        """Report what was copied and what was not. Returns the exit code."""
        words, context = self._words, self._context
        for reason in self.skipped[:_SKIPPED_TOLD]:
            context.say(f"skipped: {reason}")
        if len(self.skipped) > _SKIPPED_TOLD:
            context.say(f"skipped: {len(self.skipped) - _SKIPPED_TOLD} more")
        out = words.local == "-" and words.out  # a tar, which has stdout for itself
        if context.json and (words.local != "-" or (out and self.skipped)):
            told = {
                "name": sandbox.name, "ref": str(sandbox.ref), "audit_id": result.audit_id,
                "from": words.inside if words.out else words.local, "to": words.local if words.out else words.inside,
                "bytes": result.details.get("bytes"), "skipped": len(self.skipped),
                "left_out": self.skipped[:_SKIPPED_LISTED],
            }  # fmt: skip
            (context.streams.err if out else context.streams.out).line(json_output.line(told))
        return 1 if self.skipped else 0


async def _followed(console: Console, sandbox: Sandbox, path: str) -> str:
    """Where a link finally leads, according to the listings of folders, following all links."""
    for _ in range(40):  # as many as the kernel follows
        folder, name = posixpath.split(path)
        entry = next(
            (info for info in await console.inside.list_dir(sandbox.ref, folder or "/") if info.name == name), None
        )
        if entry is None or entry.kind is not FileKind.LINK:
            return path
        path = posixpath.normpath(posixpath.join(folder, entry.target))
    raise Conflict(f"{path} goes through too many links")


def _place_here(
    word: str, path: str, first: tarfile.TarInfo, guest_folders: GuestFolders, *, contents: bool
) -> Location:
    """Where the copy goes, depending on what exists there. Raises UsageError, Conflict, NotFound."""
    here = _found(word, guest_folders)
    try:
        if here.is_folder:
            name = posixpath.basename(path)
            if (contents or not name) and first.isdir():  # the root has no name: its contents are meant
                return here.again()
            return _inside_of(here, name, guest_folders, follow=first.isdir())
        if first.isdir() and here.what is not None:
            raise Conflict(f"{word} is a file, and {path} is a folder")
        if not first.isdir() and word.endswith("/"):
            raise NotFound(f"there is no folder {word} here", hint="make it, or leave the slash out")
        return here.again()
    finally:
        here.folder.close()


def _found(word: str, guest_folders: GuestFolders) -> Location:
    """A path on this machine. Raises NotFound if its folder does not exist, ConsoleError, Conflict."""
    try:
        return find(word, guest_folders)
    except (FileNotFoundError, NotADirectoryError):
        parent = Path(os.path.normpath(word)).parent
        raise NotFound(f"there is no folder {parent} here", hint=f"mkdir -p {parent}") from None
    except OSError as error:
        raise ConsoleError(f"{word} cannot be reached: {error.strerror}") from error


def _inside_of(here: Location, name: str, guest_folders: GuestFolders, *, follow: bool) -> Location:
    """A name in an existing folder. With ``follow``, the operator's own link to a folder is followed."""
    with here.folder.again() if here.name == "." else here.folder.enter(here.name, guest_folders) as inner:
        found = inner.entry(name)
        if found.is_link and follow:
            found.folder.close()
            return inner.followed(name, guest_folders)
        return found


def _source(word: str, order: PackOptions) -> Location:
    """The source of a copy into a sandbox. Raises NotFound, UsageError, ConsoleError, Conflict."""
    try:
        found = find(word, order.ground, follow=order.follow or word.endswith(("/", "/.")))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {word} here") from None
    except OSError as error:
        raise unreadable(word, error) from error
    if found.what is None or (word.endswith("/") and not found.is_folder):
        found.folder.close()
        raise NotFound(f"there is no {word} here")
    if not (found.is_link or found.is_folder or stat.S_ISREG(found.what.st_mode)):
        found.folder.close()
        raise UsageError(f"{word} {_SPECIAL}", hint="pass its bytes on stdin: sandbox-console exec NAME -- ...")
    return found


async def _place_inside(console: Console, sandbox: Sandbox, path: str, here: str, *, folder: bool) -> tuple[str, str]:
    """The folder to unpack into, and the name there (empty for only the folder's contents)."""
    own = (Path(here).resolve() if folder else Path(here)).name
    there = await _stat(console, sandbox, path)
    if there is not None and there.kind is FileKind.DIRECTORY:
        return path, "" if folder and here.endswith("/.") else own
    if there is not None and folder:
        raise Conflict(f"{path} in the sandbox is a file, and {here} is a folder")
    if there is None and not folder and path.endswith("/"):
        raise NotFound(f"there is no folder {path} in the sandbox", hint="make it, or leave the slash out")
    parent, name = posixpath.split(posixpath.normpath(path))
    return parent, name


async def _stat(console: Console, sandbox: Sandbox, path: str) -> FileInfo | None:
    try:
        return await console.inside.stat(sandbox.ref, path)
    except NotFound:
        return None


class _Progress(Struct):
    """Shows the bytes so far on a terminal's stderr, five times a second."""

    context: Context
    total: int | None = None
    done: int = 0
    began: float = field(default_factory=time.monotonic)
    shown: float = 0.0

    def add(self, count: int) -> None:
        """Count more bytes."""
        self.done += count
        now = time.monotonic()
        if self._wanted and now - self.shown >= _EVERY_S:
            self.shown = now
            self._write(self._text(now))

    @property
    def _wanted(self) -> bool:
        args, err = self.context.args, self.context.streams.err
        return bool(err.tty and not args.quiet and not self.context.json and args.target != "-")

    def _text(self, now: float) -> str:
        rate = size(self.done / max(now - self.began, 1e-3))
        share = f" of {size(self.total)}" if self.total and self.done <= self.total else ""
        return f"{size(self.done)}{share}  {rate}/s"

    def _write(self, text: str) -> None:
        self.context.streams.err.write(f"\r\x1b[K{text}".encode())

    def end(self) -> None:
        """End the progress; the last line stays on screen."""
        if self.shown:
            self._write(self._text(time.monotonic()) + "\n")
