"""Runs a few instructions in a separate virtual machine, in 64-bit mode with paging, as a guest's kernel does.

It is a program of its own that uses only the standard library: ``python -I -S kvm_probe.py [/dev/kvm]`` prints ``ok``,
or what went wrong. Some hosts open /dev/kvm and run simple code, but cannot run a kernel: their KVM interprets code in
supervisor mode and does not know every instruction. One of them (kvm-pvm) does not know cmpxchg16b, pxor and popcnt.
The numbers are from the kernel's Documentation/virt/kvm/api.rst, and from AMD's Programmer's Manual, volume 2, for
paging.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys

_API, _CREATE_VM, _RUN_SIZE, _CREATE_VCPU = 0xAE00, 0xAE01, 0xAE04, 0xAE41
_MEMORY, _RUN, _SET_REGS, _GET_SREGS, _SET_SREGS = 0x4020AE46, 0xAE80, 0x4090AE82, 0x8138AE83, 0x4138AE84
_SIZE, _CODE, _DATA = 0x200000, 0x4000, 0x5000
_HIGH = 0xFFFF800000000000 + _DATA
_ANSWER, _PORT = 0x2A, 0x10
_EXITS = {0: "UNKNOWN", 2: "IO", 5: "HLT", 6: "MMIO", 8: "SHUTDOWN", 9: "FAIL_ENTRY", 17: "INTERNAL_ERROR"}
_PATIENCE_S = 5

_PROGRAM = (
    b"\x48\x0f\xc7\x0c\x25" + struct.pack("<I", _DATA + 64)  # cmpxchg16b [data + 64]
    + b"\x66\x0f\xef\xc9"  # pxor xmm1, xmm1
    + b"\xf3\x48\x0f\xb8\xc9"  # popcnt rcx, rcx
    + b"\x48\xb8" + struct.pack("<Q", _HIGH)  # mov rax, the high address of the data
    + b"\x48\xc7\x00" + struct.pack("<I", _ANSWER)  # mov qword [rax], 42
    + b"\xf3\x0f\x6f\x00"  # movdqu xmm0, [rax]
    + b"\xf3\x0f\x7f\x40\x10"  # movdqu [rax + 16], xmm0
    + b"\x0f\x20\xd9\x0f\x22\xd9"  # mov rcx, cr3; mov cr3, rcx
    + b"\x8a\x40\x10"  # mov al, [rax + 16]
    + bytes((0xE6, _PORT))  # out 16, al
    + b"\xf4"  # hlt
)  # fmt: skip


def main() -> str:
    """The result: ``ok``, or a few words."""
    kvm = os.open(sys.argv[1] if len(sys.argv) > 1 else "/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
    memory = mmap.mmap(-1, _SIZE)
    _furnish(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(machine, _MEMORY, struct.pack("<IIQQQ", 0, 0, 0, _SIZE, address))
    cpu = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    state = mmap.mmap(cpu, fcntl.ioctl(kvm, _RUN_SIZE, 0))
    _long_mode(cpu)
    signal.alarm(_PATIENCE_S)  # ends a run that never returns
    fcntl.ioctl(cpu, _RUN, 0)
    signal.alarm(0)
    return _verdict(state)


def _furnish(memory: mmap.mmap) -> None:
    """Map two MiB at address 0 and again high up, with one 2 MiB page (present, writable; large)."""
    for at, value in ((0x1000, 0x2003), (0x1000 + 256 * 8, 0x2003), (0x2000, 0x3003), (0x3000, 0x83)):
        memory[at : at + 8] = struct.pack("<Q", value)
    memory[_CODE : _CODE + len(_PROGRAM)] = _PROGRAM


def _long_mode(cpu: int) -> None:
    special = bytearray(312)
    fcntl.ioctl(cpu, _GET_SREGS, special)
    # kvm_segment: base, limit, selector, type, present, dpl, db, s, l, g, avl, unusable, padding
    code = struct.pack("<QIH10B", 0, 0xFFFFFFFF, 8, 11, 1, 0, 0, 1, 1, 1, 0, 0, 0)
    data = struct.pack("<QIH10B", 0, 0xFFFFFFFF, 16, 3, 1, 0, 1, 1, 0, 1, 0, 0, 0)
    special[: 6 * 24] = code + data * 5
    struct.pack_into(
        "<4Q", special, 224, 0x80050033, 0, 0x1000, 0x220
    )  # cr0 with paging, cr2, cr3, cr4 with PAE and SSE
    struct.pack_into("<Q", special, 264, 0x500)  # efer: long mode, enabled and active
    fcntl.ioctl(cpu, _SET_SREGS, bytes(special))
    registers = [0] * 18
    registers[6], registers[16], registers[17] = 0x8000, _CODE, 2  # rsp, rip, rflags
    fcntl.ioctl(cpu, _SET_REGS, struct.pack("<18Q", *registers))


def _verdict(state: mmap.mmap) -> str:
    (reason,) = struct.unpack_from("<I", state, 8)
    _, size, port, _, offset = struct.unpack_from("<BBHIQ", state, 32)
    if _EXITS.get(reason) == "IO" and (port, size) == (_PORT, 1) and state[offset] == _ANSWER:
        return "ok"
    return f"KVM_EXIT_{_EXITS.get(reason, reason)}"


if __name__ == "__main__":
    try:
        sys.stdout.write(main() + "\n")
    except OSError as error:
        sys.stdout.write(f"{error.strerror}\n")
