"""Checks files copied in and out."""

from __future__ import annotations

import asyncio
import itertools
import tarfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sandbox_console.backends import abilities
from sandbox_console.errors import Conflict, ConsoleError, NotFound, UsageError
from sandbox_console.model.capability import Capability
from sandbox_console.model.guest import FileKind
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.rig import Checks, Rig, resident_mib, wait_s
from sandbox_console.testing.conformance.tars import Entry, get, put, tar_of

_MUCH = 100_000_000
_ODD = ("-dash", "spa ce", "new\nline", "quo'te\"", "ünïcode", "*?[", "$(x)", "back\\slash", "l" * 200, "\x1b[31m")
_folders = itertools.count()


class Files(Checks):
    async def _ready(self, rig: Rig) -> tuple[abilities.Files, SandboxRef, str]:
        """The ability, a sandbox, and a folder in it that no other check uses."""
        files, ref, scratch = rig.ability(abilities.Files, Capability.COPY), await rig.idle(), rig.profile.scratch
        if rig.profile.lent is None:
            return files, ref, scratch
        name = f"conf-{next(_folders)}"
        await put(rig, files, ref, scratch, tar_of((name, tarfile.DIRTYPE, "")))
        return files, ref, f"{scratch}/{name}"

    @pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 100_000])
    async def test_a_file_goes_in_and_comes_out(self, rig: Rig, size: int) -> None:
        files, ref, scratch = await self._ready(rig)
        data = bytes(range(256)) * (size // 256 + 1)
        await put(rig, files, ref, scratch, tar_of(("file", data[:size]), mode=0o640))
        info = await files.stat(ref, f"{scratch}/file")
        assert (info.name, info.kind, info.size, info.mode) == ("file", FileKind.FILE, size, 0o640)
        assert await get(rig, files, ref, f"{scratch}/file") == {"file": data[:size]}

    async def test_the_guest_sees_what_went_in(self, rig: Rig) -> None:
        rig.needs_sh(Capability.COPY)
        files, ref, scratch = await self._ready(rig)
        await put(rig, files, ref, scratch, tar_of(("file", b"\xff\x00content")))
        assert (await rig.run(ref, "cat", f"{scratch}/file")).out == b"\xff\x00content"
        await rig.sh(ref, f"printf 'more' >{scratch}/made")
        assert await get(rig, files, ref, f"{scratch}/made") == {"made": b"more"}

    async def test_100_mb_go_both_ways_in_bounded_memory(self, rig: Rig) -> None:
        rig.needs_speed()
        rig.needs_sh(Capability.COPY)  # not for a backend in memory
        files, ref, scratch = await self._ready(rig)
        before, most, came, largest = resident_mib(), 0, 0, 0

        async def much() -> AsyncIterator[bytes]:
            info = tarfile.TarInfo("big")
            info.size = _MUCH
            yield info.tobuf()
            for _ in range(_MUCH // 100_000):
                yield b"y" * 100_000
            yield bytes(-_MUCH % 512 + 1024)

        async with asyncio.timeout(2 * wait_s()):
            await files.upload(await rig.permit("upload"), ref, scratch, much())
            most = resident_mib()
            async for chunk in files.download(await rig.permit("download"), ref, f"{scratch}/big"):
                came, largest, most = came + chunk.count(b"y"), max(largest, len(chunk)), max(most, resident_mib())
        assert came >= _MUCH
        assert largest <= 4 * 1024 * 1024
        assert most - before < 48, "the file is kept"

    async def test_odd_names_go_both_ways(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        entries: list[Entry] = [("d", tarfile.DIRTYPE, ""), *((f"d/{name}", name.encode()) for name in _ODD)]
        await put(rig, files, ref, scratch, tar_of(*entries))
        assert [one.name for one in await files.list_dir(ref, f"{scratch}/d")] == sorted(_ODD)
        found = await get(rig, files, ref, f"{scratch}/d")
        assert {name: data for name, data in found.items() if name != "d"} == {f"d/{n}": n.encode() for n in _ODD}
        assert await get(rig, files, ref, f"{scratch}/d/-dash") == {"-dash": b"-dash"}

    async def test_a_folder_comes_with_all_below_it(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        entries = (("t", tarfile.DIRTYPE, ""), ("t/sub", tarfile.DIRTYPE, ""), ("t/sub/f", b"f"),
                   ("t/empty", tarfile.DIRTYPE, ""), ("t/link", tarfile.SYMTYPE, "sub/f"))  # fmt: skip
        await put(rig, files, ref, scratch, tar_of(*entries))
        found = await get(rig, files, ref, f"{scratch}/t")
        assert set(found) == {"t", "t/sub", "t/sub/f", "t/empty", "t/link"}
        assert next(iter(found)) == "t"
        alone = await get(rig, files, ref, f"{scratch}/t/link")
        for link in (found["t/link"], alone["link"]):
            assert isinstance(link, tarfile.TarInfo)
            assert (link.issym(), link.linkname) == (True, "sub/f")

    async def test_a_listing_tells_kinds_and_links(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        entries = (
            ("t", tarfile.DIRTYPE, ""),
            ("t/a", b"12345"),
            ("t/b", tarfile.SYMTYPE, "a"),
            ("t/c", tarfile.DIRTYPE, ""),
        )
        await put(rig, files, ref, scratch, tar_of(*entries))
        a, b, c = await files.list_dir(ref, f"{scratch}/t")
        assert (a.name, a.kind, a.size) == ("a", FileKind.FILE, 5)
        assert (b.name, b.kind, b.target) == ("b", FileKind.LINK, "a")
        assert (c.name, c.kind) == ("c", FileKind.DIRECTORY)
        assert (await files.stat(ref, f"{scratch}/t/b")).kind is FileKind.FILE  # links followed

    async def test_what_is_missing_is_not_found(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        gone = f"{scratch}/no/such"
        for call in (files.stat(ref, gone), files.list_dir(ref, gone), get(rig, files, ref, gone),
                     put(rig, files, ref, gone, tar_of(("x", b"x")))):  # fmt: skip
            with pytest.raises(NotFound):
                await call

    async def test_a_file_is_no_folder(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        await put(rig, files, ref, scratch, tar_of(("file", b"x")))
        with pytest.raises(Conflict):
            await files.list_dir(ref, f"{scratch}/file")
        with pytest.raises(Conflict):
            await put(rig, files, ref, f"{scratch}/file", tar_of(("x", b"x")))

    @pytest.mark.parametrize(
        "hostile",
        [
            [("/absolute", b"x")],
            [("../up", b"x")],
            [("in/../../up", b"x")],
            [("link", tarfile.SYMTYPE, "/etc"), ("link/x", b"x")],
            [("hard", tarfile.LNKTYPE, "../../etc/passwd")],
        ],
    )
    async def test_a_hostile_archive_is_refused(self, rig: Rig, hostile: list[tuple[str, bytes]]) -> None:
        files, ref, scratch = await self._ready(rig)
        await put(rig, files, ref, scratch, tar_of(("to", tarfile.DIRTYPE, "")))
        before = [one.name for one in await files.list_dir(ref, scratch)]
        with pytest.raises(UsageError):
            await put(rig, files, ref, f"{scratch}/to", tar_of(*hostile))
        assert [one.name for one in await files.list_dir(ref, scratch)] == before

    async def test_what_is_no_tar_is_refused(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        for archive in (b"this is not a tar" * 100, b"", tar_of(("cut", bytes(100_000)))[:50_000]):
            with pytest.raises(UsageError):
                await put(rig, files, ref, scratch, archive)

    async def test_a_guests_link_leads_to_nothing_of_this_host(self, rig: Rig, tmp_path: Path) -> None:
        files, ref, scratch = await self._ready(rig)
        secret = tmp_path / "of-the-host"
        secret.write_text("of the host")
        await put(rig, files, ref, scratch, tar_of(("out", tarfile.SYMTYPE, str(secret))))
        with pytest.raises((NotFound, Conflict)):
            await files.stat(ref, f"{scratch}/out")
        found = await get(rig, files, ref, f"{scratch}/out")
        assert all(not isinstance(member, bytes) for member in found.values())
        await put(rig, files, ref, scratch, tar_of(("dir", tarfile.SYMTYPE, str(tmp_path))))
        with pytest.raises(ConsoleError):
            await put(rig, files, ref, f"{scratch}/dir", tar_of(("written", b"x")))
        assert not (tmp_path / "written").exists()

    async def test_what_cannot_be_written_is_a_conflict(self, rig: Rig) -> None:
        rig.needs_sh(Capability.COPY, Capability.READ_ONLY_ROOT)
        files = rig.ability(abilities.Files, Capability.COPY)
        ref = await rig.make(read_only_root=True)
        with pytest.raises(Conflict):
            await put(rig, files, ref, "/etc", tar_of(("x", b"x")))

    async def test_stopped_it_works_or_says_why_not(self, rig: Rig) -> None:
        files = rig.ability(abilities.Files, Capability.COPY)
        ref = await rig.make(start=False)
        try:
            found = await files.list_dir(ref, "/etc")
        except Conflict as error:
            name = (await rig.look(ref)).name  # a table of reasons must not have the names of one run
            why = error.message.replace(f"sandbox {name}", "it").replace(name, "it")
            pytest.skip(f"{Capability.COPY} where it does not run: {why}")
        else:
            assert "passwd" in {one.name for one in found}

    async def test_leaving_a_download_early_harms_nothing(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)
        await put(rig, files, ref, scratch, tar_of(("big", bytes(5_000_000))))
        chunks = files.download(await rig.permit("download"), ref, f"{scratch}/big")
        async with aclosing(chunks) as download:  # type: ignore[type-var]
            async for _ in download:
                break
        assert (await files.stat(ref, f"{scratch}/big")).size == 5_000_000

    async def test_a_broken_upload_is_told_and_leaves_it_usable(self, rig: Rig) -> None:
        files, ref, scratch = await self._ready(rig)

        async def breaks() -> AsyncIterator[bytes]:
            yield tar_of(("x", bytes(100_000)))[:50_000]
            raise ConsoleError("the source broke")

        with pytest.raises(ConsoleError, match="the source broke"):
            async with asyncio.timeout(wait_s()):
                await files.upload(await rig.permit("upload"), ref, scratch, breaks())
        await put(rig, files, ref, scratch, tar_of(("y", b"y")))
