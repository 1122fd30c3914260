"""An image of busybox for microVMs, as an archive of docker's format, and a home of the tests' own with it loaded."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import msb_home
from tests.support.engine import busybox_tree
from tests.support.require import missing

from sandbox_console.backends.microsandbox import lifecycle

IMAGE = "sandbox-console-test/busybox:1"
MACHINE = "amd64" if os.uname().machine == "x86_64" else "arm64"
LOAD = """
import asyncio, sys
import microsandbox

async def load():
    await microsandbox.Image.load(sys.argv[1])

asyncio.run(load())
"""


def archive(tag: str = IMAGE, layer: bytes | None = None, architecture: str = MACHINE) -> bytes:
    """One layer, one name."""
    layer = layer if layer is not None else busybox_tree()
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/bin:/sbin:/usr/bin"], "Cmd": ["/bin/sh"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "the tests"}],
    }
    text = json.dumps(config).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]}]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data in (
            (name, text),
            (f"{digest}/layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def layer_with(*programs: str) -> bytes:
    """The busybox tree and programs of this host with their libraries, and the name service's."""
    buffer = io.BytesIO(busybox_tree())
    paths: list[str] = []
    for program in programs:
        path = shutil.which(program)
        assert path, f"{program} is not installed"
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        paths += [path, *(word for word in told.split() if word.startswith("/"))]
    libraries = Path("/lib") / f"{os.uname().machine}-linux-gnu"
    paths += [str(libraries / name) for name in ("libnss_dns.so.2", "libnss_files.so.2")]
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        for path in dict.fromkeys(paths):
            info = tar.gettarinfo(os.path.realpath(path), arcname=path.lstrip("/"))
            info.type, info.linkname = tarfile.REGTYPE, ""
            with open(path, "rb") as file:  # noqa: PTH123
                info.size = os.path.getsize(path)  # noqa: PTH202
                tar.addfile(info, file)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def microsandbox_home() -> Iterator[Path]:
    """A home of this session, with the image loaded. On a disk that keeps user xattrs: not every /tmp does."""
    if reason := missing("microsandbox"):
        pytest.skip(f"microsandbox: {reason}")
    base = "/rw" if Path("/rw/msb").is_dir() else "/var/tmp"  # the first one is the emulated machine's own disk
    folder = Path(tempfile.mkdtemp(prefix="sc-msb-", dir=base))
    _warm()
    if base == "/rw":
        lifecycle._AGAIN_S = (0.5, 2.0, *[5.0] * 10)  # emulated, the runtime's answers are late more often
    try:
        with msb_home.at(folder):
            (folder / "image.tar").write_bytes(archive())
            load(folder / "image.tar")
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _warm() -> None:
    """Read the runtime once: off a cold disk it answers the SDK too late, which takes it for an old one (0.7.11)."""
    import microsandbox

    for file in (Path(microsandbox.__file__).parent / "_bundled").rglob("*"):
        if file.is_file():
            file.read_bytes()


def load(path: Path) -> None:
    """Load an image, in a process of its own: on a loaded machine the SDK (0.7.11) may abort as it ends."""
    for turn in range(3):
        done = subprocess.run([sys.executable, "-c", LOAD, str(path)], check=False, timeout=300)
        if done.returncode == 0:
            return
        sys.stderr.write(f"loading {path.name}, turn {turn}: exit {done.returncode}\n")
    raise RuntimeError(f"the runtime does not load {path}")


def spec_fields() -> dict[str, Any]:
    """What a microVM of the tests is made with."""
    return {"image": IMAGE, "command": ("sleep", "1000"), "memory_mib": 128}
