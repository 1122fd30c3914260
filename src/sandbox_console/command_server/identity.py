"""What a command and the server that runs it must have in common: code, interpreter, rights and namespaces."""

from __future__ import annotations

import os
import sys
import zlib

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_RIGHTS = (b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp")
_FILES = ("limits", "cgroup", "oom_score_adj", "loginuid", "sessionid", "attr/current")
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "SSL_", "OPENSSL_", "GCONV_", "MALLOC_", "GLIBC_")
_AT_START_NAMES = frozenset({"HOME", "LOCPATH", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP"})
_NO_EXTENSIONS = "_NO_EXTENSIONS"  # aiohttp and its relatives read it when they are imported


def namespaces(pid: int | str) -> bytes:
    """A process's namespaces, root, user, groups, capabilities, limits, cgroup and login. Raises OSError."""
    folder = f"/proc/{pid}"
    parts = [os.readlink(f"{folder}/ns/{name}").encode() for name in _NAMESPACES]  # noqa: PTH115 - pathlib costs 10 ms
    root = os.stat(f"{folder}/root")  # noqa: PTH116
    parts.append(b"%d %d" % (root.st_dev, root.st_ino))
    parts += [line for line in _read(f"{folder}/status").splitlines() if line.startswith(_RIGHTS)]
    for name in _FILES:
        try:
            lines = _read(f"{folder}/{name}").splitlines()
            # A command that holds a secret gives up its core dumps, and with them those of the server that it starts.
            parts += [line for line in lines if not line.startswith(b"Max core file size")]
        except OSError:  # the kernel was built without it
            parts.append(b"-")
    number = 0 if pid == "self" else int(pid)
    parts.append(repr((os.getpriority(os.PRIO_PROCESS, number), sorted(os.sched_getaffinity(number)))).encode())
    return b"\n".join(parts)


def key() -> bytes:
    """Everything about this process that a server must share, in bytes. Raises OSError."""
    return b"\n".join((*_code(), *_environment(), namespaces("self")))


def name_of(identity: bytes) -> str:
    """A short name of an identity. Two may share one, so a server compares the whole."""
    return f"{zlib.crc32(identity):08x}{zlib.adler32(identity):08x}"


def at_start() -> dict[str, str]:
    """The variables that an interpreter and its imports read once."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_AT_START) or name in _AT_START_NAMES or name.endswith(_NO_EXTENSIONS)
    }


def _environment() -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in sorted(at_start().items())]


def _code() -> list[bytes]:
    """The interpreter and the installed code; any package that is installed or upgraded changes site-packages."""
    folders = [path for path in sys.path if path.endswith("-packages")]
    files = [sys.executable, os.path.join(os.path.dirname(__file__), "..", "__init__.py"), *folders]  # noqa: PTH118, PTH120
    parts = [os.fsencode(f"{sys.version} {sys.prefix} {__file__}")]
    for file in files:
        st = os.stat(file)  # noqa: PTH116
        parts.append(os.fsencode(f"{file} {st.st_dev} {st.st_ino} {st.st_mtime_ns}"))
    return parts


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while more := os.read(file, 65536):
            found += more
        return found
    finally:
        os.close(file)
