"""A file tree in memory, with tar in and out: the root of a fake sandbox."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterator, Mapping

from msgspec import Struct

from sandbox_console.errors import Conflict, NotFound, UsageError
from sandbox_console.model.guest import FileInfo, FileKind, PathChange

CHUNK = 64 * 1024
_LINKS_MOST = 40  # as the kernel has it (MAXSYMLINKS in linux/namei.h)


class Node(Struct, frozen=True):
    """One file, directory or link."""

    kind: FileKind
    data: bytes = b""
    mode: int = 0o644
    modified_at: float = 0.0
    target: str = ""


class Tree:
    """Maps absolute, normalised paths to nodes. The parents of each path exist."""

    def __init__(self, files: Mapping[str, bytes] | None = None, at: float = 0.0) -> None:
        self._at = at
        self.nodes: dict[str, Node] = {"/": Node(FileKind.DIRECTORY, mode=0o755, modified_at=at)}
        for path, data in (files or {}).items():
            self.put(path, Node(FileKind.FILE, data, modified_at=at))

    def copy(self) -> Tree:
        """An independent copy of the nodes."""
        other = Tree(at=self._at)
        other.nodes = dict(self.nodes)
        return other

    def write(self, path: str, data: bytes, at: float) -> None:
        """Set a file."""
        self.put(path, Node(FileKind.FILE, data, modified_at=at))

    def put(self, path: str, node: Node) -> None:
        """Set a path, with its parents."""
        for parent in _parents(path):
            self.nodes.setdefault(parent, Node(FileKind.DIRECTORY, mode=0o755, modified_at=self._at))
        self.nodes[path] = node

    def resolve(self, path: str) -> str:
        """The path with its links followed. Raises NotFound, and Conflict for a path that is not absolute."""
        if not path.startswith("/"):
            raise Conflict(f"{path!r} is not an absolute path")
        left, found, links = path.strip("/").split("/") if path.strip("/") else [], "/", 0
        while left:
            part = left.pop(0)
            found = posixpath.normpath(posixpath.join(found, part))
            node = self.nodes.get(found)
            if node is None:
                raise NotFound(f"there is no {path} in the sandbox", hint="list its folder to see what there is")
            if node.kind is FileKind.LINK:
                links += 1
                if links > _LINKS_MOST:
                    raise Conflict(f"{path} goes through too many links")
                left = [*node.target.strip("/").split("/"), *left]
                found = "/" if node.target.startswith("/") else posixpath.dirname(found)
        return found

    def info(self, path: str) -> FileInfo:
        """The status of a path, without following links."""
        node = self.nodes[path]
        size = len(node.data)
        return FileInfo(
            posixpath.basename(path) or "/", node.kind, size, node.mode, 0, 0, node.modified_at, node.target
        )

    def entries(self, path: str) -> list[FileInfo]:
        """What is in a directory. Raises NotFound, Conflict."""
        real = self.directory(path)
        inside = sorted(one for one in self.nodes if one != "/" and posixpath.dirname(one) == real)
        return [self.info(one) for one in inside]

    def directory(self, path: str) -> str:
        """The real path of a directory. Raises NotFound, and Conflict if it is not a directory."""
        real = self.resolve(path)
        if self.nodes[real].kind is not FileKind.DIRECTORY:
            raise Conflict(f"{path} is not a directory")
        return real

    def pack(self, path: str) -> Iterator[bytes]:
        """A tar of a path and everything below it, named by its last component, which stays a link if it is one."""
        folder, name = posixpath.split(path.rstrip("/"))
        real = posixpath.join(self.resolve(folder or "/"), name) if name else "/"
        if real not in self.nodes:
            raise NotFound(f"there is no {path} in the sandbox", hint="list its folder to see what there is")
        name = name or "."
        for one in sorted(self.nodes):
            if one == real or one.startswith(real.rstrip("/") + "/"):
                yield from _member(self.nodes[one], posixpath.normpath(name + "/" + one[len(real) :].strip("/")))
        yield bytes(2 * tarfile.BLOCKSIZE)

    def unpack(self, path: str, archive: bytes) -> None:
        """Put a tar's members below a directory. Its paths are expected to be checked (``tarscan.guarded``)."""
        real = self.directory(path)
        with _opened(archive) as tar:
            for info in tar:
                kept = tar.extractfile(info) if info.isreg() else None
                node = Node(_kind(info), kept.read() if kept else b"", info.mode & 0o777, info.mtime, info.linkname)
                self.put(posixpath.normpath(posixpath.join(real, info.name)), node)

    def changes(self, base: Tree) -> list[PathChange]:
        """How it differs from the tree that it was copied from."""
        path_changes = [PathChange(path, "deleted") for path in base.nodes if path not in self.nodes]
        for path, node in self.nodes.items():
            if path not in base.nodes:
                path_changes.append(PathChange(path, "added"))
            elif node != base.nodes[path]:
                path_changes.append(PathChange(path, "changed"))
        return sorted(path_changes, key=lambda change: change.path)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(node.data) for node in self.nodes.values())


def base_tree(at: float) -> Tree:
    """The contents of every fake image."""
    tree = Tree({"/etc/hostname": b"fake\n", "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n"}, at)
    for name in ("/bin", "/root", "/usr/bin", "/workspace"):
        tree.put(name, Node(FileKind.DIRECTORY, mode=0o755, modified_at=at))
    tree.put("/tmp", Node(FileKind.DIRECTORY, mode=0o1777, modified_at=at))  # noqa: S108 - the guest's
    tree.put("/bin/sh", Node(FileKind.FILE, b"#!\n", 0o755, at))
    tree.put("/lib", Node(FileKind.LINK, mode=0o777, modified_at=at, target="usr/lib"))
    tree.put("/usr/lib/libc.so", Node(FileKind.FILE, b"\x7fELF", modified_at=at))
    return tree


def _opened(archive: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(archive))
    except tarfile.ReadError as error:
        raise UsageError(f"the archive is not a tar: {error}") from error


def _parents(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]


def _member(node: Node, name: str) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.size = node.mode, node.modified_at, len(node.data)
    info.type = {FileKind.DIRECTORY: tarfile.DIRTYPE, FileKind.LINK: tarfile.SYMTYPE}.get(node.kind, tarfile.REGTYPE)
    info.linkname = node.target
    yield info.tobuf(tarfile.PAX_FORMAT)
    for at in range(0, len(node.data), CHUNK):
        yield node.data[at : at + CHUNK]
    yield bytes(-len(node.data) % tarfile.BLOCKSIZE)


def _kind(info: tarfile.TarInfo) -> FileKind:
    if info.isdir():
        return FileKind.DIRECTORY
    if info.issym():
        return FileKind.LINK
    return FileKind.FILE if info.isreg() or info.islnk() else FileKind.OTHER
