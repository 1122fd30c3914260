"""Folders that another user of this machine exchanges while a sandbox starts: nothing else is ever mounted."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make
from tests.bubblewrap.test_links import _image
from tests.support.as_user import UID

from sandbox_console.backends.bubblewrap.supervise.mount_sources import MountSources, SourceChanged, opened
from sandbox_console.errors import BackendError, ConsoleError

STARTS = int(os.environ.get("SWAPPED_STARTS", "12"))
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

ordinary = pytest.mark.skipif(os.geteuid() != 0, reason="making another user's links needs root")


def exchange(one: Path, other: Path) -> None:
    """Swap two names at once (renameat2(2))."""
    call = ctypes.CDLL(None, use_errno=True).renameat2
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


class Swapping:
    """Swaps two names at full speed while it is entered."""

    def __init__(self, one: Path, other: Path) -> None:
        self._names, self._end, self._thread = (one, other), threading.Event(), threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.is_set():
            exchange(*self._names)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def private(open_folder: Path) -> Path:
    """A folder with a file of the operator's."""
    folder = open_folder / "private"
    folder.mkdir(mode=0o755)
    (folder / "mine").write_text("the operator's\n")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("which", ["entry", pytest.param("workspace", marks=ordinary)])
async def test_a_link_that_takes_the_place_of_a_folder_is_never_mounted(
    make: Make, open_folder: Path, private: Path, workspace: Path, which: str
) -> None:
    root = _image(open_folder, {})
    (root / "opt").mkdir(mode=0o755)
    (root / "link").symlink_to(private)
    (open_folder / "link").symlink_to(private)
    if os.geteuid() == 0:
        os.lchown(open_folder / "link", UID, UID)
    box = await make(image=f"dir:{root}", workspace=str(workspace), start=False)
    swap = (root / "opt", root / "link") if which == "entry" else (workspace, open_folder / "link")
    found = ""
    for _ in range(STARTS):
        try:
            with Swapping(*swap):
                await box.start()
        except ConsoleError:  # it was a link when the console or bwrap looked
            continue
        found += await box.sh("cat /opt/mine /workspace/mine 2>/dev/null")
        await box.stop(0)
    assert found == ""
    if swap[0].is_symlink():
        exchange(*swap)
    await box.start()
    assert await box.sh("ls -d /opt /workspace") == "/opt\n/workspace\n"


@pytest.fixture
def image(open_folder: Path) -> Path:
    root = open_folder / "image"
    (root / "usr").mkdir(parents=True)
    (root / "opt").mkdir()
    (root / "file").write_text("x")
    (root / "lib").symlink_to("usr/lib")
    os.mkfifo(root / "pipe")
    (root / "home").mkdir()
    return root


def test_an_image_is_mounted_entry_by_entry(image: Path) -> None:
    sources = MountSources()
    words = sources.image(str(image))
    assert words == [
        *("--ro-bind", f"{image}/file", "/file"), *("--symlink", "usr/lib", "/lib"), *("--ro-bind", f"{image}/opt", "/opt"),
        *("--ro-bind", f"{image}/usr", "/usr"),
    ]  # fmt: skip
    sources.close()


def test_what_is_not_what_was_opened_is_told(image: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = MountSources()
    sources.workspace("/usr")
    monkeypatch.setattr("sandbox_console.backends.bubblewrap.supervise.mount_sources._MOUNT_S", 0.0)
    with pytest.raises(SourceChanged, match="exchanged"):  # this process's root has no such workspace
        sources.check(os.getpid(), lambda: False)
    sources.check(os.getpid(), lambda: True)
    sources.close()
    sources._opened["usr"] = opened("/usr"), "/usr"
    sources.check(os.getpid(), lambda: False)
    sources.close()


@ordinary
def test_a_link_of_another_user_is_not_followed_at_any_place(image: Path, private: Path) -> None:
    for name, target in (("mine", image), ("theirs", private), ("relative", "image")):
        (image.parent / name).symlink_to(target)
    os.lchown(image.parent / "theirs", UID, UID)
    for path in (image.parent / "mine", image.parent / "relative", image, f"{image.parent}/./relative/../image//"):
        fd = opened(str(path))
        assert os.path.samestat(os.fstat(fd), image.stat())
        os.close(fd)
    for path in (image.parent / "theirs", f"{image.parent}/mine/../theirs/mine"):
        with pytest.raises(SourceChanged, match=f"a link of user {UID} leads to it"):
            opened(str(path))
    (image.parent / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        opened(str(image.parent / "loop"))


def test_no_descriptor_is_left(image: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sources = MountSources()
    sources.image(str(image))
    sources.workspace(str(image))
    sources.close()
    shutil.rmtree(image)
    with pytest.raises(FileNotFoundError):
        sources.workspace(str(image))
    assert len(os.listdir("/proc/self/fd")) == before


@ordinary
async def test_an_image_behind_a_link_of_another_user_does_not_start(make: Make, open_folder: Path) -> None:
    root = _image(open_folder, {})
    (open_folder / "theirs").symlink_to(root)
    box = await make(image=f"dir:{open_folder}/theirs")
    await box.stop(0)
    os.lchown(open_folder / "theirs", UID, UID)
    with pytest.raises(BackendError, match=f"a link of user {UID} leads to it") as caught:
        await box.start()
    assert "use a copy that only you can write" in caught.value.hint
