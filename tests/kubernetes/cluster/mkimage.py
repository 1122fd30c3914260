"""Writes an archive of images out of a static busybox: the image of tests, and the one that holds a Pod's namespaces.

``mkimage.py BUSYBOX ARCHIVE``
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

IMAGES = {"k8s-node.test/pause:1": ["/bin/sleep", "2147483647"], "k8s-node.test/busybox:1": ["/bin/sh"]}


def put(
    tar: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    to: str = "",
) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, to
    tar.addfile(info, io.BytesIO(data))


def layer(busybox: str) -> bytes:
    """The root: folders, busybox, and a link for each program that it has."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "var"):
            put(tar, name, mode=0o1777 if name == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        put(tar, "bin/busybox", Path(busybox).read_bytes(), mode=0o755)
        programs = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for program in programs:
            if program != "busybox":
                put(tar, f"bin/{program}", kind=tarfile.SYMTYPE, to="busybox")
        put(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    return buffer.getvalue()


def config(command: list[str], digest: str) -> bytes:
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Env": ["PATH=/bin"], "Cmd": command, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()


def main(busybox: str, archive: str) -> None:
    root = layer(busybox)
    manifest = []
    part = Path(f"{archive}.part")
    with tarfile.open(part, "w") as tar:
        put(tar, "layer.tar", root)
        for tag, command in IMAGES.items():
            data = config(command, hashlib.sha256(root).hexdigest())
            name = f"{hashlib.sha256(data).hexdigest()}.json"
            put(tar, name, data)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]})
        put(tar, "manifest.json", json.dumps(manifest).encode())
    part.rename(archive)


main(*sys.argv[1:])
