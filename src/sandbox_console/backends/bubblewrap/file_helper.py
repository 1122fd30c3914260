"""The program that reads and writes a sandbox's files, run as ``python -I -S -X utf8 file_helper.py FD``.

FD is the descriptor of its order, which is in memory. Before it looks at any path, it becomes the sandbox's user and
joins the sandbox's mount namespace, or changes its root if the sandbox is not running. So a guest's link leads nowhere
else. It stays outside the PID namespace, so no guest sees or signals it. Answers are JSON lines on stdout, a tar goes
through stdout or stdin, and the reason for a failure is one JSON object on stderr.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tarfile
from typing import Any, BinaryIO

_CHUNK = 1 << 20
_HOLE = 64 * 1024
"""Blocks of this many zero bytes are not written: a hole is left instead."""
LEFT_OUT = "SANDBOXCONSOLE.left_out"
"""The key in a tar's extended header of what was left out and why, as a JSON list; other programs ignore it."""

_TOLD_BYTES = 128 * 1024
_KERNELS = ("/dev", "/proc", "/sys")  # left out of a tar of the whole root, as they contain no real files
_NOT_HERE = (errno.ENOENT, errno.ENOTDIR)
_FAIL = {errno.EACCES: "denied", errno.EPERM: "denied", errno.EROFS: "read_only", errno.ENOSPC: "full"}


class Refused(Exception):
    """Reported to the console: ``word`` is the kind of failure, and the message names the path or the member."""

    def __init__(self, word: str, text: str) -> None:
        super().__init__(text)
        self.word = word


def enter(order: dict[str, Any]) -> None:
    """Become the sandbox's user, in the namespace or root that has its files."""
    from supervise import enter as entering  # type: ignore[import-not-found]
    from supervise import kernel

    if order["spaces"]:
        owner, mounts, inner = order["spaces"]
        entering.become(order["uid"])
        kernel.keep_to_itself()
        kernel.setns(owner)
        kernel.setns(mounts)
        if os.fstat(inner).st_ino != os.fstat(owner).st_ino:
            kernel.setns(inner)
        for fd in order["spaces"]:
            os.close(fd)
    else:
        if order["uid"] is None:
            kernel.own_user_namespace()
        os.chroot(order["root"])
        entering.become(order["uid"])
        kernel.keep_to_itself()
    os.chdir("/")
    kernel.drop_privileges()


def described(name: str, st: os.stat_result, target: str = "") -> dict[str, Any]:
    """A path's status in the form that the console reads."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return {
        "name": name,
        "kind": kinds.get(stat.S_IFMT(st.st_mode), "other"),
        "size": st.st_size,
        "mode": stat.S_IMODE(st.st_mode),
        "uid": st.st_uid,
        "gid": st.st_gid,
        "modified_at": st.st_mtime,
        "target": target,
    }


def tell(message: dict[str, Any]) -> None:
    """Write one line of an answer."""
    sys.stdout.write(json.dumps(message) + "\n")


def look(path: str, name: str) -> None:
    """``stat``: one path, links followed."""
    tell(described(name, os.stat(path)))


def listing(path: str, _name: str) -> None:
    """``list``: a directory's entries; an entry that vanishes meanwhile is left out."""
    need_directory(path)
    for entry in os.scandir(path):
        try:
            st = entry.stat(follow_symlinks=False)
            target = os.readlink(entry.path) if entry.is_symlink() else ""
        except FileNotFoundError:
            continue
        tell(described(entry.name, st, target))


def need_directory(path: str) -> None:
    """Open a directory. Raises Refused if it is not one."""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise Refused("no_directory", "it is not a directory")


class LeftOut:
    """What is not in a tar of a folder, and why. The header of the folder, repeated at the end, says it."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._room, self._more = _TOLD_BYTES, 0

    def add(self, name: str, why: str) -> None:
        """Note one member. Beyond what a header has room for, members are counted."""
        text = f"{name!r} {why}"
        self._room -= len(text)
        if self._room > 0:
            self._told.append(text)
        else:
            self._more += 1

    def tell(self, tar: tarfile.TarFile, path: str, name: str) -> None:
        """Write the header, if something was left out."""
        told = self._told + ([f"{self._more} more"] if self._more else [])
        if told:
            info = tar.gettarinfo(path, name)
            info.pax_headers = {LEFT_OUT: json.dumps(told)}
            tar.addfile(info)


def pack(path: str, name: str) -> None:
    """``download``: a tar of a path and everything below it, on stdout. Only the path itself has to be readable."""
    is_folder, out = stat.S_ISDIR(os.lstat(path).st_mode), LeftOut()
    if is_folder:
        os.listdir(path)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as tar:
        todo = [(path, name)]
        while todo:
            at, known = todo.pop()
            if add(tar, at, known, out if is_folder else None):
                todo += sorted(children(at, known, out), reverse=True)
        if is_folder:
            out.tell(tar, path, name)


def children(path: str, name: str, out: LeftOut) -> list[tuple[str, str]]:
    """The paths in a folder and their names in the tar; none if it cannot be read."""
    try:
        found = [(os.path.join(path, child), f"{name}/{child}") for child in os.listdir(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        out.add(name, f"cannot be read: {error.strerror}")
        return []
    for at, known in found if path == "/" else ():
        if at in _KERNELS:
            out.add(known, "is the kernel's")
    return [one for one in found if path != "/" or one[0] not in _KERNELS]


def add(tar: tarfile.TarFile, path: str, name: str, out: LeftOut | None) -> bool:
    """Write one member; True for a directory. What vanishes is left out, as with tar(1); hard links become copies.

    With ``out``, what cannot be read is left out, too.
    """
    fd = -1
    try:
        info: tarfile.TarInfo | None = tar.gettarinfo(path, name)
        tar.inodes.clear()  # type: ignore[attr-defined] # it would keep every name, however many there are
        if info is not None and (info.isreg() or info.islnk()):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        if out is None:
            raise
        out.add(name, f"cannot be read: {error.strerror}")
        return False
    if info is None:
        if out is not None:
            out.add(name, "is a socket")
        return False
    if fd >= 0:
        add_file(tar, fd, info)
    else:
        tar.addfile(info)
        tar.members.clear()  # type: ignore[attr-defined] # as above
    return info.isdir()


def add_file(tar: tarfile.TarFile, fd: int, info: tarfile.TarInfo) -> None:
    """An open regular file, never a FIFO that took its place, with the size that it has now."""
    with os.fdopen(fd, "rb") as file:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            return
        info.type, info.linkname, info.size = tarfile.REGTYPE, "", st.st_size
        tar.addfile(info, Padded(file))  # type: ignore[arg-type]
        tar.members.clear()  # type: ignore[attr-defined]


class Padded:
    """A file that returns zeros where it is shorter than it was, as with tar(1)."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """Always returns as much as requested."""
        data = self._file.read(size)
        return data + bytes(size - len(data))


def unpack(path: str, _name: str) -> None:
    """``upload``: a tar on stdin into a directory."""
    need_directory(path)
    # Reads are unbuffered, as tarfile's stream mode requests one block at a time.
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=_CHUNK) as tar:
        tar.extraction_filter = lambda member, _path: member  # put() decides
        for member in tar:
            put(tar, member, path)
            tar.members.clear()  # type: ignore[attr-defined]
    while sys.stdin.buffer.read(_CHUNK):
        pass  # read the padding after the tar, so that its writer does not hit a closed pipe


def put(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    """Write one member, owned by the sandbox's user, which is the only one in its namespace.

    ``tarfile``'s own filters are not in every Python 3.11, and refuse links to absolute paths, which a guest may have.
    """
    name = repr(member.name)
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk() or member.isfifo()):
        raise Refused("bad_member", f"the archive's member {name} is neither file, folder, link nor FIFO")
    if not below(path, member.name) or (member.islnk() and not below(path, member.linkname)):
        raise Refused("bad_member", f"the archive's member {name} would be outside of {path}, by a link that is there")
    member.mode &= 0o777
    member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
    try:
        if member.isreg() and not member.issparse() and member.size > _HOLE:
            write(tar, member, os.path.join(path, member.name))
        else:
            tar.extract(member, path)
    except OSError as error:
        raise Refused(_FAIL.get(error.errno or 0, "failed"), f"{name}: {error.strerror}") from error


def write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    """Write a longer file; its runs of zeros become holes."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source, zeros, left, hole = tar.extractfile(member), bytes(_HOLE), member.size, False
    with open(path, "wb", buffering=0) as file:
        while left:
            data = source.read(min(_HOLE, left)) if source else b""
            if not data:
                raise tarfile.ReadError("unexpected end of data")
            left -= len(data)
            hole = data == zeros
            if hole:
                file.seek(len(data), os.SEEK_CUR)
            else:
                file.write(data)
        if hole:
            file.truncate(member.size)
        os.fchmod(file.fileno(), member.mode)
        os.utime(file.fileno(), (member.mtime, member.mtime))


def below(folder: str, name: str) -> bool:
    """Whether a path is in a folder, after following links."""
    real = os.path.realpath(folder)
    found = os.path.realpath(os.path.join(real, name))
    return os.path.commonpath([real, found]) == real


_VERBS = {"stat": look, "list": listing, "download": pack, "upload": unpack}


def main() -> int:
    """Read the order, enter the sandbox, and run the order."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from supervise import wire

    order = wire.from_memfd(int(sys.argv[1]))
    try:
        enter(order)
        _VERBS[order["op"]](order["path"], order["name"])
        sys.stdout.flush()
    except Refused as error:
        return fail(error.word, str(error))
    except tarfile.TarError as error:
        return fail("bad_archive", f"the archive is not a tar: {error}")
    except BrokenPipeError:
        return 1
    except OSError as error:
        word = "missing" if error.errno in _NOT_HERE else _FAIL.get(error.errno or 0, "failed")
        name = error.filename if isinstance(error.filename, str) and error.filename != order["path"] else ""
        return fail(word, f"{name}: {error.strerror}" if name else str(error.strerror))
    return 0


def fail(word: str, text: str) -> int:
    """Report the reason for a failure."""
    sys.stderr.write(json.dumps({"word": word, "text": text}))
    return 1


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # Python's cleanup would report a closed stdout a second time
