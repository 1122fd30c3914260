"""What a tar that is passed on says of itself, in chunks of any size, and of hostile bytes."""

from __future__ import annotations

import io
import json
import random
import tarfile

import pytest

from sandbox_console.hostfs.tar_notes import LEFT_OUT, TarNotes

WHY = ["'d/sock' is a socket", "'d/\u00e9' cannot be read"]


def made(form: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, size in (("d/" + "long" * 60, 5000), ("d/empty", 0), ("d/even", 1024)):
            info = tarfile.TarInfo(name)
            info.size = size
            # A file's bytes are not the tar's own words, even if they look like them.
            tar.addfile(info, io.BytesIO(b"30 SANDBOXCONSOLE.left_out=[1]\n".ljust(size, b"x")[:size]))
        for name, kind in (("d/fifo", tarfile.FIFOTYPE), ("d/link", tarfile.SYMTYPE), ("d/hard", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "d/even"
            tar.addfile(info)
        info = tarfile.TarInfo("d")
        info.type = tarfile.DIRTYPE
        info.pax_headers = {LEFT_OUT: json.dumps(WHY)} if form == tarfile.PAX_FORMAT else {}
        tar.addfile(info)
    return out.getvalue()


def told(data: bytes, sizes: random.Random) -> list[str]:
    found: list[str] = []
    notes, at = TarNotes(found.append), 0
    while at < len(data):
        size = sizes.choice([1, 7, 511, 512, 513, 70_000])
        notes.feed(data[at : at + size])
        at += size
    return found


@pytest.mark.parametrize(("form", "expected"), [(tarfile.PAX_FORMAT, WHY), (tarfile.GNU_FORMAT, [])])
def test_what_was_left_out_is_told_once_however_the_bytes_are_cut(form: int, expected: list[str]) -> None:
    for seed in range(20):
        assert told(made(form), random.Random(seed)) == expected


def test_broken_bytes_raise_nothing() -> None:
    whole, rng = made(tarfile.PAX_FORMAT), random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        assert len(told(bytes(data), rng)) <= len(WHY)
    assert told(rng.randbytes(5000), rng) == []
