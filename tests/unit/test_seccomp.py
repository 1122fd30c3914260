"""The filters that the package ships: what they were compiled from, and what they answer, by an interpreter of BPF."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from types import ModuleType

import pytest

from sandbox_console.backends import seccomp

SCRIPT = Path(__file__).parents[2] / "scripts/seccomp.py"
FOLDER = Path(seccomp.__file__).parent
LISTS = json.loads((FOLDER / "calls.json").read_text())
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
AUDIT = {"x86_64": 0xC000003E, "x86": 0x40000003, "aarch64": 0xC00000B7, "arm": 0x40000028}  # linux/audit.h
MACHINES = {"x86_64": ("x86_64", "x86"), "aarch64": ("aarch64", "arm")}
UPPER = 0xDEAD << 32


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_seccomp", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_shipped_is_what_the_lists_compile_to(script: ModuleType) -> None:
    made = script.files()
    assert set(made) == {path.name for path in FOLDER.iterdir() if path.suffix in (".bpf", ".json")} - {"calls.json"}
    for name, content in made.items():
        assert (FOLDER / name).read_bytes() == content, f"{name}: run scripts/seccomp.py"


class Filter:
    """A program as linux/bpf_common.h has it, as far as these use it."""

    def __init__(self, name: str) -> None:
        self.code = list(struct.iter_unpack("<HBBI", (FOLDER / name).read_bytes()))

    def __call__(self, arch: str, number: int, *args: int) -> int:
        data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, AUDIT[arch], 0, *(*args, *[0] * 6)[:6])
        at, value = 0, 0
        while True:
            code, yes, no, constant = self.code[at]
            at += 1
            match code:
                case 0x20:
                    value = struct.unpack_from("<I", data, constant)[0]
                case 0x54:
                    value &= constant
                case 0x05:
                    at += constant
                case 0x15:
                    at += yes if value == constant else no
                case 0x25:
                    at += yes if value > constant else no
                case 0x35:
                    at += yes if value >= constant else no
                case 0x45:
                    at += yes if value & constant else no
                case 0x06:
                    return constant
                case _:
                    raise AssertionError(hex(code))


def _numbers(script: ModuleType, arch: str) -> dict[int, str]:
    """Every call that libseccomp knows of an architecture."""
    lib = script.library()
    lib.seccomp_syscall_resolve_num_arch.restype = script.ctypes.c_char_p
    token = lib.seccomp_arch_resolve_name(arch.encode())
    asked = [*range(600), *range(0x0F0001, 0x0F0007)]
    found = {number: lib.seccomp_syscall_resolve_num_arch(script.ctypes.c_uint32(token), number) for number in asked}
    return {number: name.decode() for number, name in found.items() if name}


@pytest.mark.parametrize("asked", [(), ("ptrace",), ("nested",), ("ptrace", "nested")])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_number_is_answered_as_the_lists_say(script: ModuleType, machine: str, asked: tuple[str, ...]) -> None:
    held = Filter("-".join((machine, *asked)) + ".bpf")
    young = dict.fromkeys(LISTS["young"]["allowed"].values(), ALLOW)
    young |= dict.fromkeys(LISTS["young"]["refused"].values(), EPERM)
    lists = {name: set(LISTS[name]) for name in ("ptrace", "nested")}
    allowed = {*LISTS["allowed"], "clone", "socket", "personality"}.union(*(lists[name] for name in asked))
    refused = set(LISTS["refused"]).union(*(lists[name] for name in set(lists) - set(asked)))
    for arch in MACHINES[machine]:
        known = _numbers(script, arch)
        for number in {*range(1200), *known}:
            name = known.get(number, "")
            want = ALLOW if name in allowed else EPERM if name in refused else young.get(number, ENOSYS)
            if arch == "x86_64" and number in LISTS["x86_64_only"].values():
                want = ALLOW
            assert held(arch, number) == want, (arch, number, name)
        assert held(arch, -1) == ENOSYS


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_arguments_are_compared_as_the_kernel_reads_them(script: ModuleType, machine: str, nested: bool) -> None:
    held = Filter(f"{machine}{'-nested' if nested else ''}.bpf")
    for arch in MACHINES[machine]:
        by_name = {name: number for number, name in _numbers(script, arch).items()}
        for upper in (0, UPPER):
            for name in ("socket", "socketpair"):
                verdicts = {family: held(arch, by_name[name], family | upper) for family in range(60)}
                assert {family for family, one in verdicts.items() if one != ALLOW} == {38, 40}, name
            commands = {number: held(arch, by_name["ioctl"], 0, number | upper) for number in range(0x5400, 0x5480)}
            assert {number for number, one in commands.items() if one == EPERM} == {0x5412, 0x541C}
            assert held(arch, by_name["personality"], 0x40000 | upper) == EPERM
            assert held(arch, by_name["personality"], 0xFFFFFFFF | upper) == ALLOW
            assert held(arch, by_name["clone"], 0x003D0F00 | upper) == ALLOW, "a thread"
            for bit in (0x00020000, *(1 << shift for shift in range(25, 31))):
                assert held(arch, by_name["clone"], bit | 17 | upper) == (ALLOW if nested else EPERM), hex(bit)
        assert held(arch, by_name["clone3"]) == ENOSYS


def test_no_number_of_x32_and_no_other_architecture_gets_through() -> None:
    held = Filter("x86_64.bpf")
    assert {held("x86_64", number | 0x40000000) for number in range(600)} == {ENOSYS}
    assert {held("aarch64", number) for number in range(600)} == {ENOSYS}
    assert {Filter("aarch64.bpf")("x86_64", number) for number in range(600)} == {ENOSYS}


def test_the_kernel_takes_programs_of_this_length() -> None:
    assert all(path.stat().st_size // 8 <= 4096 for path in FOLDER.glob("*.bpf"))  # BPF_MAXINSNS


def test_the_engines_profile_lets_no_such_socket_through(script: ModuleType) -> None:
    profile = json.loads(seccomp.docker_profile())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    masks = [
        (arg["value"], arg["valueTwo"])
        for rule in profile["syscalls"]
        if rule["names"] == ["socket"]
        for arg in rule["args"]
    ]
    for upper in (0, UPPER):
        let = {family for family in range(200) if any((family | upper) & mask == want for mask, want in masks)}
        assert let == set(range(200)) - {38, 40}
    free = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
            for name in rule["names"]}  # fmt: skip
    assert not free & {"socket", "socketcall", "clone", "clone3", "personality", "keyctl", "bpf", "io_uring_setup"}


def test_masks_leave_out_what_they_should_and_nothing_else(script: ModuleType) -> None:
    for values in ({0}, {7}, {38, 40}, set(range(64))):
        masks = script.all_but(values, 6)
        assert {number for number in range(64) if any(number & mask == want for mask, want in masks)} == set(
            range(64)
        ) - values
