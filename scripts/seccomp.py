#!/usr/bin/env python3
"""Compile the filters of system calls that the package ships, from calls.json; run it when that file changes.

    scripts/seccomp.py            write them into the package
    scripts/seccomp.py FOLDER     write them there

Needs libseccomp.so.2 of the version that calls.json names (Debian 12 has it in its base system): another one may give
other bytes for the same meaning.

A program has three parts, and a call goes through them in this order. Each hands on what it does not decide:

1. what is refused by its arguments, and socketcall, whose arguments no filter sees (libseccomp);
2. calls that are younger than libseccomp, whose numbers are the same on every architecture, and personality, which is
   allowed for a few values only (by hand);
3. the list: allowed, refused with EPERM, or else ENOSYS, as a kernel answers that does not know a call (libseccomp).

Numbers of x32 are in none: they get ENOSYS. libseccomp's "allow" at the end of part 1 becomes a jump to part 2.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import struct
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "src/sandbox_console/backends/seccomp"
MACHINES = {"x86_64": ("x86_64", "x86"), "aarch64": ("aarch64", "arm")}
"""Each machine, and the architectures whose programs its kernel runs (without x32)."""

_EPERM, _ENOSYS = 1, 38
_LOW = 0xFFFFFFFF  # the kernel reads these arguments as 32 bits: what stands above must not make them another number
_MASKED = 7  # enum scmp_compare: equal under a mask
_BAD_ARCH, _OPTIMIZE = 2, 8  # enum scmp_filter_attr
_BY_TREE = 2
ALLOW = 0x7FFF0000  # linux/seccomp.h
_AUDIT_X86_64 = 0xC000003E  # linux/audit.h
_NR, _ARCH, _FIRST = 0, 4, 16  # offsets in struct seccomp_data; the low half of the first argument, little-endian
_LOAD, _JUMP, _IF_EQUAL, _IF_LEAST, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x06  # linux/bpf_common.h

Instruction = tuple[int, int, int, int]


def errno(number: int) -> int:
    """The verdict that answers a call with an error."""
    return 0x00050000 | number


class _Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint), ("minor", ctypes.c_uint), ("micro", ctypes.c_uint)]


def library() -> ctypes.CDLL:
    """libseccomp."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_version.restype = ctypes.POINTER(_Version)
    lib.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    lib.seccomp_syscall_resolve_name_arch.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    lib.seccomp_arch_resolve_name.argtypes = [ctypes.c_char_p]
    lib.seccomp_arch_resolve_name.restype = ctypes.c_uint32
    lib.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Compare),
    ]  # fmt: skip
    for name in ("release", "arch_add", "arch_remove", "attr_set", "export_bpf"):
        getattr(lib, f"seccomp_{name}").argtypes = {
            "release": [ctypes.c_void_p],
            "arch_add": [ctypes.c_void_p, ctypes.c_uint32],
            "arch_remove": [ctypes.c_void_p, ctypes.c_uint32],
            "attr_set": [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32],
            "export_bpf": [ctypes.c_void_p, ctypes.c_int],
        }[name]
    return lib


def version(lib: ctypes.CDLL) -> str:
    """As calls.json names it."""
    found = lib.seccomp_version().contents
    return f"{found.major}.{found.minor}.{found.micro}"


class Part:
    """One filter in libseccomp, for all architectures of a machine."""

    def __init__(self, lib: ctypes.CDLL, machine: str, default: int) -> None:
        self._lib = lib
        self._filter = lib.seccomp_init(ctypes.c_uint32(default))
        native = lib.seccomp_arch_native()
        tokens = [lib.seccomp_arch_resolve_name(name.encode()) for name in MACHINES[machine]]
        for token in tokens:
            if token != native & 0xFFFFFFFF:
                self._check(lib.seccomp_arch_add(self._filter, token), "arch_add")
        if native & 0xFFFFFFFF not in tokens:
            self._check(lib.seccomp_arch_remove(self._filter, native & 0xFFFFFFFF), "arch_remove")
        self._check(lib.seccomp_attr_set(self._filter, _BAD_ARCH, errno(_ENOSYS)), "attr_set")
        self._check(lib.seccomp_attr_set(self._filter, _OPTIMIZE, _BY_TREE), "attr_set")

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result < 0:
            raise OSError(-result, f"seccomp_{what}")

    def rule(self, action: int, name: str, *compare: tuple[int, int, int, int]) -> None:
        """One rule; architectures without the call go without it."""
        number = self._lib.seccomp_syscall_resolve_name(name.encode())
        if number == -1:
            raise LookupError(f"libseccomp {version(self._lib)} does not know {name}")
        rules = (_Compare * len(compare))(*(_Compare(*one) for one in compare))
        self._check(self._lib.seccomp_rule_add_array(self._filter, action, number, len(rules), rules), f"rule {name}")

    def program(self) -> list[Instruction]:
        """Compiled."""
        with tempfile.TemporaryFile() as file:
            self._check(self._lib.seccomp_export_bpf(self._filter, file.fileno()), "export_bpf")
            file.seek(0)
            code = file.read()
        self._lib.seccomp_release(self._filter)
        return list(struct.iter_unpack("=HBBI", code))


def by_arguments(lib: ctypes.CDLL, machine: str, calls: dict, *, nested: bool) -> list[Instruction]:
    """Part 1: allow goes on."""
    part = Part(lib, machine, ALLOW)
    refuse = errno(_EPERM)
    part.rule(refuse, "socketcall")
    for family in calls["socket"].values():
        for name in ("socket", "socketpair"):  # socketpair loads the family's module before it fails
            part.rule(refuse, name, (0, _MASKED, _LOW, family))
    for command in calls["ioctl"].values():
        part.rule(refuse, "ioctl", (1, _MASKED, _LOW, command))
    for flag in () if nested else calls["clone"].values():
        part.rule(refuse, "clone", (0, _MASKED, flag, flag))
    code = part.program()
    return [(_JUMP, 0, 0, len(code) - at - 1) if one == (_RETURN, 0, 0, ALLOW) else one for at, one in enumerate(code)]


def by_hand(lib: ctypes.CDLL, machine: str, calls: dict) -> list[Instruction]:
    """Part 2."""
    refuse = (_RETURN, 0, 0, errno(_EPERM))
    code: list[Instruction] = []
    for kind, verdict in (("allowed", (_RETURN, 0, 0, ALLOW)), ("refused", refuse)):
        for number in calls["young"][kind].values():
            code += [(_IF_EQUAL, 0, 1, number), verdict]
    first = min(min(calls["young"][kind].values()) for kind in ("allowed", "refused"))
    code = [(_LOAD, 0, 0, _NR), (_IF_LEAST, 0, len(code), first), *code]
    for number in calls["x86_64_only"].values() if machine == "x86_64" else ():
        code += [(_IF_EQUAL, 0, 3, number), (_LOAD, 0, 0, _ARCH), (_IF_EQUAL, 0, 1, _AUDIT_X86_64)]
        code += [(_RETURN, 0, 0, ALLOW)]
    values: list[Instruction] = []
    for value in calls["personality"]:
        values += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, ALLOW)]
    for name in MACHINES[machine]:
        token = lib.seccomp_arch_resolve_name(name.encode())
        number = lib.seccomp_syscall_resolve_name_arch(token, b"personality")
        check = [(_LOAD, 0, 0, _NR), (_IF_EQUAL, 0, len(values) + 2, number), (_LOAD, 0, 0, _FIRST), *values, refuse]
        code += [(_LOAD, 0, 0, _ARCH), (_IF_EQUAL, 0, len(check), token), *check]
    return code


def the_list(lib: ctypes.CDLL, machine: str, calls: dict, asked: dict[str, bool]) -> list[Instruction]:
    """Part 3; ``asked`` is which of the lists that a spec can ask for are allowed."""
    part = Part(lib, machine, errno(_ENOSYS))
    extra = {name: calls[name] for name in asked}
    for name in [*calls["allowed"], "clone", "socket", *(one for key in extra if asked[key] for one in extra[key])]:
        part.rule(ALLOW, name)
    for name in [*calls["refused"], *(one for key in extra if not asked[key] for one in extra[key])]:
        if name != "socketcall":  # decided in part 1; here libseccomp would mix it with its parts
            part.rule(errno(_EPERM), name)
    return part.program()


def compiled(lib: ctypes.CDLL, machine: str, calls: dict, *, ptrace: bool, nested: bool) -> bytes:
    """The whole program, as prctl and bwrap take it."""
    code = by_arguments(lib, machine, calls, nested=nested) + by_hand(lib, machine, calls)
    code += the_list(lib, machine, calls, {"ptrace": ptrace, "nested": nested})
    return b"".join(struct.pack("=HBBI", *one) for one in code)


def docker(calls: dict) -> str:
    """A profile for an engine whose own lets AF_VSOCK or AF_ALG through, or looks at 64 bits of the family.

    An engine hands rules to libseccomp one by one and knows no order, so the families are allowed by masks.
    socketcall is named with an error of its own: as the default's it would be left out, and then let through.
    """

    def entry(names: list[str], action: str = "ALLOW", **more: object) -> dict:
        return {"names": names, "action": f"SCMP_ACT_{action}", **more}

    def masked(index: int, mask: int, value: int) -> dict:
        return {"args": [{"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}]}

    namespaces = sum(calls["clone"].values())
    debug = sorted({"kcmp", "pidfd_getfd", "process_madvise"} & set(calls["ptrace"]))
    rules = [
        entry(["socketcall", "clone3"], "ERRNO", errnoRet=_ENOSYS),
        entry(sorted([*calls["allowed"], *calls["young"]["allowed"], *calls["x86_64_only"]])),
        entry(sorted(set(calls["ptrace"]) - set(debug)), includes={"minKernel": "4.8"}),
        entry(debug, includes={"caps": ["CAP_SYS_PTRACE"]}),
        entry(["chroot"], includes={"caps": ["CAP_SYS_CHROOT"]}),
        entry(["clone"], **masked(0, namespaces, 0)),
        *(entry(["personality"], **masked(0, _LOW, value)) for value in calls["personality"]),
        *(entry(["socket"], **masked(0, *one)) for one in all_but(set(calls["socket"].values()), 32)),
    ]
    arches = [
        {
            "architecture": f"SCMP_ARCH_{first.upper()}",
            "subArchitectures": [f"SCMP_ARCH_{one.upper()}" for one in below],
        }
        for first, *below in (MACHINES["x86_64"] + ("x32",), MACHINES["aarch64"])
    ]
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": _EPERM, "archMap": arches, "syscalls": rules}
    return json.dumps(profile, separators=(",", ":")) + "\n"


def all_but(values: set[int], bits: int) -> list[tuple[int, int]]:
    """Every number of ``bits`` bits but these, as masks and values: the fewest, from above."""
    found: list[tuple[int, int]] = []

    def look(mask: int, value: int, left: int) -> None:
        if not any(one & mask == value for one in values):
            found.append((mask, value))
        elif left:
            bit = 1 << (left - 1)
            look(mask | bit, value, left - 1)
            look(mask | bit, value | bit, left - 1)

    look(0, 0, bits)
    return found


def files() -> dict[str, bytes]:
    """Every file that is made, by its name. Raises RuntimeError for a libseccomp that is not the one of calls.json."""
    calls = json.loads((DATA / "calls.json").read_text())
    lib = library()
    if version(lib) != calls["libseccomp"]:
        raise RuntimeError(f"libseccomp {calls['libseccomp']} is needed, and this is {version(lib)}")
    made = {"docker.json": docker(calls).encode()}
    for machine in MACHINES:
        for ptrace, nested in itertools.product((False, True), repeat=2):
            name = f"{machine}{'-ptrace' if ptrace else ''}{'-nested' if nested else ''}.bpf"
            made[name] = compiled(lib, machine, calls, ptrace=ptrace, nested=nested)
    return made


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    for name, content in files().items():
        (folder / name).write_bytes(content)
        print(f"{folder / name}: {len(content)} bytes")
