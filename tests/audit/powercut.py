"""What a power cut leaves of a folder: every write of a traced program, of which only what was synced is certain.

The trace is strace's. At a cut each file has what it had at its last fsync; of what was written since, each sector
of 512 bytes is there or not by chance, and so is each rename that its folder was not synced after.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
_CALLS = "openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,renameat,renameat2"
_LINE = re.compile(r"^(\d+)\s+(.*)$", re.DOTALL)
_FD = re.compile(r"^(\d+)<([^>]*)>")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True)
class Call:
    """One call: its name, the file it is about (empty: stdout), its data, an offset or a length, a second name."""

    name: str
    path: str
    data: bytes = b""
    at: int = 0
    to: str = ""


def trace(command: list[str], folder: Path, out: Path) -> list[Call]:
    """Run a program to its end; gives what it did to files under ``folder``, and its writes to stdout."""
    words = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={_CALLS}", "-o", str(out), *command]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=110)
    return [call for line in _whole_lines(out) if (call := _parsed(line, str(folder)))]


def _whole_lines(out: Path) -> list[str]:
    """Calls in the order of their ends; those that were interrupted by another thread's put together."""
    begun: dict[str, str] = {}
    lines = []
    for line in out.read_text().splitlines():
        pid, rest = _LINE.match(line).groups()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>")
        elif rest.startswith("<..."):
            lines.append(begun.pop(pid) + rest.split("resumed>", 1)[1])
        else:
            lines.append(rest)
    return lines


def _parsed(line: str, folder: str) -> Call | None:
    name, _, rest = line.partition("(")
    if re.search(r"= -1 ", rest[-200:]):
        return None
    if name in ("pwrite64", "write", "fsync", "fdatasync", "ftruncate"):
        return _on_descriptor(name, rest, folder)
    paths = [_text(found) for found in _STRING.findall(rest)]
    if not paths or not paths[0].startswith(folder):
        return None
    if name.startswith("rename"):
        return Call("exchange" if "RENAME_EXCHANGE" in rest else "rename", paths[0], to=paths[1])
    if name.startswith("unlink"):
        return Call("unlink", paths[0])
    if "O_CREAT" in rest or "O_TRUNC" in rest:
        return Call("truncate" if "O_TRUNC" in rest else "create", paths[0])
    return None


def _on_descriptor(name: str, rest: str, folder: str) -> Call | None:
    number, where = _FD.match(rest).groups()
    path = _text(where)
    if name == "write" and number == "1":
        return Call("told", "", _data(rest))
    if not path.startswith(folder):
        return None
    if name in ("fsync", "fdatasync"):
        return Call("sync", path)
    numbers = [int(found) for found in re.findall(r", (\d+)\s*(?=[,)])", rest)]
    if name == "ftruncate":
        return Call("ftruncate", path, at=numbers[-1])
    return Call("write", path, _data(rest), numbers[-1] if name == "pwrite64" else -1)


def _data(rest: str) -> bytes:
    return bytes.fromhex(_STRING.search(rest)[1].replace("\\x", ""))


def _text(escaped: str) -> str:
    return bytes.fromhex(escaped.replace("\\x", "")).decode()


@dataclass
class _File:
    durable: bool = False  # its name survives
    synced: bytes = b""
    now: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)

    def write(self, at: int, data: bytes) -> None:
        at = len(self.now) if at < 0 else at
        _put(self.now, at, data)
        self.pending.append((at, data))

    def truncate(self, size: int) -> None:
        _resize(self.now, size)
        self.pending.append(size)

    def sync(self) -> None:
        self.durable, self.synced, self.pending = True, bytes(self.now), []

    def after_cut(self, chance: random.Random) -> bytes | None:
        if not self.durable and chance.random() < 0.5:
            return None
        left = bytearray(self.synced)
        for change in self.pending:
            if isinstance(change, int):
                if chance.random() < 0.5:
                    _resize(left, change)
                continue
            at, data = change
            for begin in range(0, len(data), SECTOR):
                if chance.random() < 0.5:
                    _put(left, at + begin, data[begin : begin + SECTOR])
        return bytes(left)


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class Disk:
    """The files as calls leave them, and as a cut would."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.told = b""
        self._names: list[tuple[str, dict[str, _File]]] = []  # renames and removals that may not survive, with what was

    def apply(self, call: Call) -> None:
        match call.name:
            case "told":
                self.told += call.data
            case "create" | "truncate":
                file = self.files.setdefault(call.path, _File())
                if call.name == "truncate":
                    file.truncate(0)
            case "write":
                self.files.setdefault(call.path, _File()).write(call.at, call.data)
            case "ftruncate":
                self.files.setdefault(call.path, _File()).truncate(call.at)
            case "sync":
                self._sync(call.path)
            case "rename" | "exchange" | "unlink":
                self._rename(call)

    def _sync(self, path: str) -> None:
        if path in self.files:
            self.files[path].sync()
        else:  # the folder: its names are certain from now on
            self._names.clear()

    def _rename(self, call: Call) -> None:
        self._names.append((call.name, dict(self.files)))
        file = self.files.pop(call.path, None)
        if call.name == "exchange":
            other = self.files.pop(call.to)
            self.files[call.path] = other
        if call.name != "unlink" and file is not None:
            self.files[call.to] = file

    def cut(self, chance: random.Random, into: Path, folder: Path) -> list[int]:
        """Write what is left of ``folder`` to ``into``; gives the rows that had been acknowledged."""
        # Names change in order: some of the last ones did not happen.
        lost = chance.randint(0, len(self._names))
        files = self._names[len(self._names) - lost][1] if lost else self.files
        for path, file in files.items():
            left = file.after_cut(chance)
            if left is not None and not path.endswith("-shm"):
                to = into / Path(path).relative_to(folder)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.touch(mode=0o600)  # as all that the log makes
                to.write_bytes(left)
        return [int(line) for line in self.told.splitlines()]
