"""``images``: list, pull, remove, prune, load and save images."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from sandbox_console.cli.context import Context, OutputClosed
from sandbox_console.cli.create import follow
from sandbox_console.cli.formatting import Columns, duration, size
from sandbox_console.cli.hosts import able_as_answered, only
from sandbox_console.cli.stdin import chunks
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.hostfs.files import NewFile, fresh_name, opened
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.tar_pack import unreadable
from sandbox_console.model.action import Action
from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import LoadImage, PruneImages, PullImage, RemoveImage, SaveImage
from sandbox_console.model.image import Image, Prunable
from sandbox_console.model.log import Stream
from sandbox_console.service import ActionResult, Console, ExecIO, Operation

_HEAD = ("NAME", "ID", "SIZE", "AGE", "PLATFORM", "USED BY", "BACKEND")
_ID_SHOWN = 12
_CHUNK = 256 * 1024


async def images(context: Context) -> int:
    """The verb behind ``images``."""
    verbs = {"ls": _ls, "pull": _pull, "rm": _rm, "prune": _prune, "load": _load, "save": _save}
    async with context.open() as console:
        await verbs[context.args.what](context, console)
    return context.code


async def _ls(context: Context, console: Console) -> None:
    """Print every image of every backend that has some, each as it answers. One that fails does not hide the others."""
    columns = Columns(_HEAD)
    async with aclosing(able_as_answered(context, console, Capability.IMAGES)) as hosts:
        async for backend, host in hosts:
            try:
                images = await console.inside.images(backend, host)
            except ConsoleError as error:
                context.fail(error, backend)
                continue
            if images:  # the header's columns take their widths from the first rows
                _print(context, columns, sorted(images, key=lambda image: (not image.names, image.names)))
    _print(context, columns, ())


def _print(context: Context, columns: Columns, images: Sequence[Image]) -> None:
    if context.json:
        for image in images:
            context.record(msgspec.to_builtins(image))
        return
    for line in columns.lines(row for image in images for row in _rows(image, context.now())):
        context.streams.out.line(line)


def _rows(image: Image, now: float) -> list[tuple[str, ...]]:
    """One row for each name of an image."""
    age = duration(None if image.created_at is None else now - image.created_at)
    used = "-" if image.used_by is None else str(image.used_by)
    platforms = ",".join(image.platforms) or "-"
    rest = (_short(image.id), size(image.size_bytes), age, platforms, used, f"{image.backend}/{image.host}")
    return [(name, *rest) for name in image.names or ("(no name)",)]


def _short(id: str) -> str:
    return id.removeprefix("sha256:")[:_ID_SHOWN]


async def _pull(context: Context, console: Console) -> None:
    backend, host = await only(context, console, Capability.IMAGES_CHANGE)
    for name in dict.fromkeys(context.args.images):
        await _one(context, console, PullImage(backend, host, name), name)


async def _rm(context: Context, console: Console) -> None:
    backend, host = await only(context, console, Capability.IMAGES_CHANGE)
    for name in dict.fromkeys(context.args.images):
        await _one(context, console, RemoveImage(backend, host, name, context.args.force), name)


async def _one(context: Context, console: Console, action: Action, name: str) -> None:
    """Do one of several actions. A failure does not stop the others."""
    try:
        result = await follow(context, console.perform(action, consent=context.consent()))
    except ConsoleError as error:
        context.fail(error, name if len(context.args.images) > 1 else "")
    else:
        _tell(context, name, result)


def _tell(context: Context, name: str, result: ActionResult) -> None:
    if context.json:
        data: dict[str, Any] = {"image": name, "action": f"images {context.args.what}", "audit_id": result.audit_id}
        context.record(data | result.details)
    else:
        context.text(name)


async def _prune(context: Context, console: Console) -> None:
    """Remove images without a name, or with ``--all`` all unused images. ``--dry-run`` only shows them."""
    unused, dry = context.args.all, context.args.dry_run
    backend, host = await only(context, console, Capability.IMAGES_CHANGE)
    free = await console.inside.prunable_images(backend, host, unused=unused)
    if dry:
        _tell_pruned(context, free, {"dry_run": True, "audit_id": None, "freed_bytes": free.freed_bytes})
        return
    result = await follow(context, console.perform(PruneImages(backend, host, unused), consent=context.consent()))
    gone = set(result.details.get("removed") or ())  # type: ignore[call-overload]
    removed = Prunable(tuple(image for image in free.images if image.id in gone), free.freed_bytes, free.spared)
    freed = result.details.get("freed_bytes")
    _tell_pruned(context, removed, {"dry_run": False, "audit_id": result.audit_id, "freed_bytes": freed})


def _tell_pruned(context: Context, prunable: Prunable, data: dict[str, Any]) -> None:
    if context.json:
        lists = {"images": prunable.images, "spared": prunable.spared}
        context.record({key: [msgspec.to_builtins(image) for image in images] for key, images in lists.items()} | data)
        return
    context.table(_HEAD, (row for image in prunable.images for row in _rows(image, context.now())))
    verb = "would free" if data["dry_run"] else "freed"
    count = len(prunable.images)
    context.say(f"{count} image{'' if count == 1 else 's'}, {verb} {size(data['freed_bytes'])}")
    for image in prunable.spared:
        context.say(f"spared: {', '.join(image.names) or _short(image.id)}: {image.needed}")


async def _load(context: Context, console: Console) -> None:
    """Load an archive of ``images save``, from a file or stdin (``-``)."""
    path = context.args.file
    source = chunks(context.streams.stdin) if path == "-" else _file(path, await console.ground())
    backend, host = await only(context, console, Capability.IMAGE_FILES)
    operation = console.perform(LoadImage(backend, host), consent=context.consent(), io=ExecIO(source))
    result = await follow(context, operation)
    _tell(context, str(result.details.get("image", "")), result)


async def _file(path: str, guest_folders: GuestFolders) -> AsyncIterator[bytes]:
    try:
        with await asyncio.to_thread(opened, path, guest_folders) as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from error


async def _save(context: Context, console: Console) -> None:
    """Save to ``-o FILE``, which appears when it is complete, or to stdout."""
    out = context.args.output
    if out is None and context.streams.out.tty:
        raise UsageError("an archive cannot go to a terminal", hint="use -o FILE, or a pipe")
    backend, host = await only(context, console, Capability.IMAGE_FILES)
    action = SaveImage(backend, host, context.args.image)
    saved = _Saved(context, None if out is None else out, await console.ground())
    try:
        operation = console.perform(action, consent=context.consent(), io=ExecIO(on_output=saved.give))
        saved.operation = operation
        result = await saved.result(operation)
        saved.keep()
    finally:
        saved.drop()
    if out is not None:
        _tell(context, context.args.image, result)


class _Saved:
    """An archive that is being written to stdout, or to a temporary file beside its place until it is complete."""

    operation: Operation

    def __init__(self, context: Context, path: str | None, guest_folders: GuestFolders) -> None:
        self._out, self._path, self._closed = context.streams.out, path, False
        self._name, part = (Path(path).name, Path(path).with_name(fresh_name())) if path else ("", None)
        try:
            self._made = NewFile(part, guest_folders) if part else None
        except OSError as error:
            raise ConsoleError(f"{path} cannot be made: {error.strerror}") from error

    async def give(self, _: Stream, chunk: bytes) -> None:
        """Write a chunk."""
        try:
            if self._made:
                await asyncio.to_thread(self._made.file.write, chunk)
            else:
                await self._out.stream(chunk)
        except OutputClosed:
            self._closed = True
            self.operation.cancel()
        except OSError as error:
            raise ConsoleError(f"{self._path} cannot be written: {error.strerror}") from error

    async def result(self, operation: Operation) -> ActionResult:
        """The operation's result. Raises OutputClosed if nobody reads our output."""
        try:
            return await operation.result()
        except asyncio.CancelledError:
            if self._closed:
                raise OutputClosed from None
            raise

    def keep(self) -> None:
        """Put the complete file in its place."""
        if self._made and self._path:
            self._made.keep(self._name)

    def drop(self) -> None:
        """Remove a partial file."""
        if self._made:
            self._made.drop()
