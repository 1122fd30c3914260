"""A static program for x86-64 that makes the system calls it was given and writes what the kernel answered.

No compiler is needed: its machine code is here. It calls by ``syscall`` (where a number with bit 30 is one of x32), or
by ``int 0x80``, which is an i386 call also in a 64-bit program. It waits on nothing and ends by itself.
"""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path
from typing import NamedTuple

import sandbox_console.backends.seccomp as data

X32 = 0x40000000
EPERM, ENOSYS = -1, -38
_BASE = 0x400000
_CALL = struct.Struct("<8Q")
# rbx is the call's record: how, number, six arguments; the answer takes the number's place.
_CODE = bytes.fromhex(
    "488d1d00000000"  # lea rbx, [rip + table]      (patched)
    "41bc00000000"  # mov r12d, count               (patched)
    "48833b00"  # next: cmp qword [rbx], 0
    "751f"  # jne old
    "488b4308488b7b10488b7318488b53204c8b53284c8b43304c8b4b38"  # rax, rdi, rsi, rdx, r10, r8, r9 from the record
    "0f05"  # syscall
    "90eb16"  # nop; jmp store
    "538b43088b4b188b53208b73288b7b308b5b10"  # old: push rbx; eax, ecx, edx, esi, edi, ebx
    "cd80"  # int 0x80
    "4863c05b"  # movsxd rax, eax; pop rbx
    "48894308"  # store: mov [rbx + 8], rax
    "4883c340"  # add rbx, 64
    "41ffcc"  # dec r12d
    "75b7"  # jnz next                              (patched)
    "b801000000bf01000000"  # mov eax, write; mov edi, 1
    "488d3500000000"  # lea rsi, [rip + table]      (patched)
    "ba00000000"  # mov edx, size                   (patched)
    "0f05"  # syscall
    "b83c00000031ff0f05"  # mov eax, exit; xor edi, edi; syscall
)


class Call(NamedTuple):
    """One call; ``old`` is by int 0x80."""

    number: int
    args: tuple[int, ...] = ()
    old: bool = False


def program(calls: list[Call]) -> bytes:
    """The ELF file; on stdout it writes what :func:`answers` reads."""
    head = 64 + 56
    start = _BASE + head
    table = start + len(_CODE)
    code = bytearray(_CODE)

    def put(at: int, value: int) -> None:
        struct.pack_into("<i", code, at, value)

    put(3, len(_CODE) - 7)
    put(9, len(calls))
    loop, again = 13, _CODE.index(bytes.fromhex("41ffcc75")) + 5
    code[17 + 1] = _CODE.index(bytes.fromhex("538b4308")) - 19
    jump = _CODE.index(bytes.fromhex("90eb"))
    code[jump + 2] = _CODE.index(bytes.fromhex("48894308")) - (jump + 3)
    code[again - 1] = (loop - again) & 0xFF
    lea = _CODE.index(bytes.fromhex("488d35"))
    put(lea + 3, len(_CODE) - (lea + 7))
    put(lea + 8, len(calls) * _CALL.size)
    body = b"".join(_CALL.pack(int(one.old), one.number, *(*one.args, *[0] * 6)[:6]) for one in calls)
    size = head + len(code) + len(body)
    elf = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, _BASE, _BASE, size, size, 4096)
    assert table == _BASE + head + len(code)
    return elf + load + bytes(code) + body


def answers(output: bytes) -> list[int]:
    """What each call was answered, as the kernel does: below 0 an error."""
    return [struct.unpack_from("<q", output, at + 8)[0] for at in range(0, len(output), _CALL.size)]


def numbers(names: list[str], arch: str) -> dict[str, int]:
    """The numbers of calls in an architecture, of those that it has."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_arch_resolve_name.restype = ctypes.c_uint32
    token = lib.seccomp_arch_resolve_name(arch.encode())
    found = {name: lib.seccomp_syscall_resolve_name_rewrite(ctypes.c_uint32(token), name.encode()) for name in names}
    return {name: number for name, number in found.items() if number >= 0}


def listed() -> dict:
    """The lists that the filters are compiled from."""
    return json.loads((Path(data.__file__).parent / "calls.json").read_text())


def refused() -> tuple[dict[str, Call], dict[str, int]]:
    """Every call that a guest is refused, in every way it can be made, by a name to tell it; and its answer."""
    calls, lists = {}, listed()
    names = [*lists["refused"], *lists["ptrace"], *lists["nested"]]
    for arch, old, bit in (("x86_64", False, 0), ("x86_64", False, X32), ("x86", True, 0)):
        how = "i386 " if old else "x32 " if bit else ""
        here = numbers(names, arch) | lists["young"]["refused"]
        calls |= {how + name: Call(number | bit, old=old) for name, number in here.items()}
        own = numbers(["socket", "socketpair", "ioctl", "clone", "clone3", "personality"], arch)
        for name, family in lists["socket"].items():
            calls[f"{how}{name}"] = Call(own["socket"] | bit, (family, 2), old)
            calls[f"{how}{name}, upper half set"] = Call(own["socket"] | bit, (family | 1 << 32, 2), old)
            calls[f"{how}{name} pair"] = Call(own["socketpair"] | bit, (family, 2), old)
        for name, command in lists["ioctl"].items():
            calls[f"{how}{name}"] = Call(own["ioctl"] | bit, (0, command), old)
            calls[f"{how}{name}, upper half set"] = Call(own["ioctl"] | bit, (0, command | 7 << 32), old)
        for name, flag in lists["clone"].items():
            calls[f"{how}{name}"] = Call(own["clone"] | bit, (flag | 17,), old)
        calls[f"{how}clone3"] = Call(own["clone3"] | bit, (0, 0), old)
        calls[f"{how}personality"] = Call(own["personality"] | bit, (0x0400000,), old)
        calls[f"{how}an unknown call"] = Call(1000 | bit, old=old)
    never = ("clone3", "unknown")
    return calls, {
        name: ENOSYS if name.startswith("x32") or name.endswith(never) or "unknown" in name else EPERM for name in calls
    }
