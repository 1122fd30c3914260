"""Tars for checks: makes them, cuts them into chunks and reads them back."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator

from sandbox_console.backends import abilities
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.rig import Rig

Entry = tuple[str, bytes] | tuple[str, bytes, str]
"""A file's name and content; or a name, tar's type byte and where a link points."""


def tar_of(*entries: Entry, mode: int = 0o644) -> bytes:
    """A PAX tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry[0])
            info.mode = mode
            if len(entry) == 2:
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
            else:
                info.type, info.linkname, info.mode = entry[1], entry[2], 0o755
                tar.addfile(info)
    return out.getvalue()


async def chunks(data: bytes, size: int = 65536) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def put(rig: Rig, files: abilities.Files, ref: SandboxRef, path: str, archive: bytes) -> None:
    await files.upload(await rig.permit("upload"), ref, path, chunks(archive))


async def get(rig: Rig, files: abilities.Files, ref: SandboxRef, path: str) -> dict[str, tarfile.TarInfo | bytes]:
    """Members by name: the content of a file, and any other member itself."""
    data = b"".join([chunk async for chunk in files.download(await rig.permit("download"), ref, path)])
    found: dict[str, tarfile.TarInfo | bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            found[member.name.rstrip("/")] = content.read() if content else member
    return found
