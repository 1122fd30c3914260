"""The parts of the machine: a kernel out of Debian's package and an initial root of busybox, both cached.

A part is made once for a version: its folder is named by what went into it, and is moved into place when it is whole.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mkfs.ext4": "e2fsprogs",
    "depmod": "kmod",
    "busybox": "busybox-static",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
# In this order; those of kvm are loaded later, by the machine's own init.
MODULES = (
    *("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "9p", "9pnet_virtio", "overlay", "fuse", "tun"),
    *("crc32c_generic", "ext4", "vhost_vsock", "erofs", "loop", "kvm", "kvm_amd"),
)
_SHA256 = re.compile(r"^SHA256: ([0-9a-f]{64})$", re.MULTILINE)
_DEPENDS = re.compile(r"^\s*Depends: (linux-image-\S+)$", re.MULTILINE)


class MachineError(Exception):
    """The machine cannot be made or does not run; says why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What QEMU is given to boot."""

    kernel: Path
    initrd: Path


def cache() -> Path:
    """Where parts and machines are kept: outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandbox-console-tests" / "microvm"


def missing() -> list[str]:
    """Debian's packages of the programs that are not here."""
    return [package for program, package in PROGRAMS.items() if not _which(program)]


def build() -> Parts:
    """The parts, out of the cache where they are there and whole. Raises MachineError."""
    if lacking := missing():
        raise MachineError(f"not installed: {', '.join(lacking)} (as root: scripts/setup microvm)")
    package, digest = _kernel_package()
    recipe = hashlib.sha256("".join([digest, (HERE / "initrd.sh").read_text(), *MODULES]).encode()).hexdigest()
    folder = cache() / f"parts-{recipe[:16]}"
    parts = Parts(folder / "vmlinuz", folder / "initrd.gz")
    if _whole(folder):
        return parts
    shutil.rmtree(folder, ignore_errors=True)
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix="making-") as made:
        _make(Path(made), package, digest)
        (Path(made) / "parts").rename(folder)
    return parts


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _run(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run([_which(argv[0]) or argv[0], *argv[1:]], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _kernel_package() -> tuple[str, str]:
    """The kernel that linux-image-amd64 means now, and the digest that apt's signed index has for it."""
    found = _DEPENDS.search(_depends())
    if found is None:  # an image of Debian often comes without apt's index
        _run("apt-get", "update", "-qq")
        found = _DEPENDS.search(_depends())
    if found is None:
        raise MachineError("apt knows no linux-image-amd64: see /etc/apt/sources.list")
    digest = _SHA256.search(_run("apt-cache", "show", "--no-all-versions", found[1]))
    if digest is None:
        raise MachineError(f"apt has no digest of {found[1]}")
    return found[1], digest[1]


def _depends() -> str:
    try:
        return _run("apt-cache", "depends", "linux-image-amd64")
    except MachineError:
        return ""


def _make(work: Path, package: str, digest: str) -> None:
    _run("apt-get", "download", "-q", package, cwd=work)
    [deb] = work.glob("*.deb")
    if hashlib.sha256(deb.read_bytes()).hexdigest() != digest:
        raise MachineError(f"{deb.name} is not what apt's index says it is")
    tree, parts = work / "tree", work / "parts"
    _run("dpkg-deb", "-x", str(deb), str(tree))
    parts.mkdir()
    [kernel] = (tree / "boot").glob("vmlinuz-*")
    shutil.copyfile(kernel, parts / "vmlinuz")
    (parts / "initrd.gz").write_bytes(gzip.compress(_initrd(tree), 1))
    sums = "".join(f"{hashlib.sha256(part.read_bytes()).hexdigest()}  {part.name}\n" for part in _files(parts))
    (parts / "SHA256SUMS").write_text(sums)


def _files(folder: Path) -> list[Path]:
    return [folder / "vmlinuz", folder / "initrd.gz"]


def _whole(folder: Path) -> bool:
    try:
        sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
        return all(hashlib.sha256(part.read_bytes()).hexdigest() == sums[part.name] for part in _files(folder))
    except (OSError, KeyError):
        return False


def _initrd(tree: Path) -> bytes:
    archive = _Newc()
    for folder in ("bin", "dev", "proc", "sys", "lower", "rw", "root", "modules"):
        archive.add(folder, stat.S_IFDIR | 0o755)
    archive.add("bin/busybox", stat.S_IFREG | 0o755, Path(_which("busybox") or "").read_bytes())
    archive.add("init", stat.S_IFREG | 0o755, (HERE / "initrd.sh").read_bytes())
    modules = _modules(tree)
    for number, module in enumerate(modules):
        archive.add(f"modules/{number:03}-{module.name}", stat.S_IFREG | 0o644, module.read_bytes())
    return archive.bytes()


def _modules(tree: Path) -> list[Path]:
    """The modules and what they need, in the order of loading."""
    [version] = (path.name for path in (tree / "lib/modules").iterdir())
    _run("depmod", "-b", str(tree), version)
    base = tree / "lib/modules" / version
    needs: dict[str, list[str]] = {}
    for line in (base / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).name.split(".")[0].replace("-", "_")] = [*reversed(others.split()), path]
    # What is not there as a module is built in.
    return [base / path for path in dict.fromkeys(one for name in MODULES for one in needs.get(name, ()))]


class _Newc:
    """A cpio archive in the format of an initial root (the kernel's Documentation/driver-api/early-userspace)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0

    def add(self, name: str, mode: int, data: bytes = b"") -> None:
        self._inode += 1
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        self._padded(b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0")
        self._padded(data)

    def bytes(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)

    def _padded(self, data: bytes) -> None:
        self._parts.append(data + b"\0" * (-len(data) % 4))
