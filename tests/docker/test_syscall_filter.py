"""Sockets of AF_VSOCK and AF_ALG, tried from a static program in containers that the console makes."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
from tests.docker.conftest import collect
from tests.support import microimage
from tests.support.engine import IMAGE, busybox_tree
from tests.support.permits import MakePermit
from tests.support.syscalls import ENOSYS, EPERM, X32, Call, answers, listed, numbers, program

from sandbox_console.backends.docker import syscall_filter
from sandbox_console.backends.docker.diagnosis import look
from sandbox_console.model.action import Exec
from sandbox_console.model.sandbox import SandboxRef

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the static program is x86-64's")
INFO = {"SecurityOptions": ["name=seccomp,profile=default"], "Architecture": "x86_64"}


def _sockets() -> dict[str, Call]:
    found = {}
    for how, bit, old in (("", 0, False), ("x32 ", X32, False), ("i386 ", 0, True)):
        number = numbers(["socket"], "x86" if old else "x86_64")["socket"] | bit
        for name, family in listed()["socket"].items():
            found[f"{how}{name}"] = Call(number, (family, 5), old)
            found[f"{how}{name}, upper half set"] = Call(number, (family | 1 << 32, 5), old)
    return found | {"i386 socketcall": Call(102, (1, 0), old=True), "a Unix socket": Call(41, (1, 1))}


async def _answers(backend, permit: MakePermit, ref: SandboxRef, asked: dict[str, Call]) -> dict[str, int]:
    """Put the program into /tmp by stdin, run it there."""
    script = "cat > /tmp/attack; chmod 755 /tmp/attack; /tmp/attack"
    process = await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", script)), [])
    await process.write(program(list(asked.values())))
    await process.close_stdin()
    out, err, _ = await collect(process)
    assert not err, err
    return dict(zip(asked, answers(out), strict=True))


@x86_64
async def test_no_such_socket_opens_in_a_container(backend, permit, make) -> None:
    ref = await make()
    got = await _answers(backend, permit, ref, _sockets())
    assert got.pop("a Unix socket") >= 0
    assert got.pop("i386 socketcall") == ENOSYS
    assert set(got.values()) <= {EPERM, ENOSYS}, got
    fact = next(one for one in (await backend.inspect(ref)).effective if one.field == "seccomp")
    assert (fact.value, fact.enforced) == ("this console's profile", True)
    assert "AF_VSOCK" in fact.note


@x86_64
async def test_the_engines_own_default_lets_one_through(backend, permit, make, engine, monkeypatch) -> None:
    """So that the test above can fail; where an engine's default holds, only the upper half of the register is left."""
    monkeypatch.setattr(syscall_filter, "options", lambda *_: [])
    ref = await make()
    got = await _answers(backend, permit, ref, _sockets())
    assert {got["AF_VSOCK"], got["AF_VSOCK, upper half set"]} != {EPERM}, got
    fact = next(one for one in (await backend.inspect(ref)).effective if one.field == "seccomp")
    assert fact.value == "the engine's default"


async def test_a_386_images_container_keeps_the_engines_profile_and_says_so(backend, permit, make) -> None:
    """Its programs have no call for a socket but socketcall(2), which the console's profile refuses."""

    async def image():
        yield microimage.archive("sandbox-console-test/old:1", busybox_tree(), "386")

    name = await backend.load_image(await permit("load-image"), image())
    ref = await make(image=name)
    try:
        fact = next(one for one in (await backend.inspect(ref)).effective if one.field == "seccomp")
        assert fact.value == "the engine's default"
        assert "AF_VSOCK" in fact.note
        got = await _answers(backend, permit, ref, {"i386 socketcall": Call(102, (1, 0), old=True)})
        assert got["i386 socketcall"] != ENOSYS, "a 32-bit program has no socket"
    finally:
        await backend.remove(await permit("remove"), ref, True)
        await backend.remove_image(await permit("remove-image"), name, True)


async def test_a_container_does_what_it_did(backend, permit, make) -> None:
    ref = await make(user="0")
    script = "set -e; cd /tmp; echo a >a; chmod 600 a; ln -s a b; cat b | wc -c; (sleep 0.1 & wait); uname -s"
    process = await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", script)), [])
    out, err, end = await collect(process)
    assert (out, err, end.code) == (b"2\nLinux\n", b"", 0)


def test_a_profile_that_the_operator_chose_stays() -> None:
    assert syscall_filter.options(INFO, {"Architecture": "amd64"})
    for options in (["name=seccomp,profile=/etc/docker/mine.json"], ["name=seccomp,profile=unconfined"], []):
        assert syscall_filter.options(INFO | {"SecurityOptions": options}, {}) == []
    assert syscall_filter.options(INFO | {"SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin"]}, {})
    assert syscall_filter.options(INFO | {"Architecture": "riscv64"}, {}) == [], "there is none for it"
    assert syscall_filter.options(INFO, {"Architecture": "386"}) == [], "its programs have no socket without socketcall"


@pytest.mark.parametrize(
    ("security", "value", "enforced"),
    [
        ([], "the engine's default", True),
        (["no-new-privileges:true", "seccomp=unconfined"], "unconfined", False),
        (["seccomp:unconfined"], "unconfined", False),
        (['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}'], "a profile of its own", True),
        (["seccomp=builtin"], "builtin", True),
    ],
)
def test_what_a_container_has_is_told_in_words(security: list[str], value: str, enforced: bool) -> None:
    found = syscall_filter.fact(security)
    assert (found.value, found.enforced) == (value, enforced)


@pytest.mark.parametrize(
    ("profile", "state", "words"),
    [
        ("default", "ok", "AF_VSOCK"),
        ("builtin", "ok", "AF_VSOCK"),
        ("/etc/docker/mine.json", "ok", "/etc/docker/mine.json"),
        ("unconfined", "warning", "unconfined"),
    ],
)
def test_the_doctor_tells_what_new_sandboxes_get(profile: str, state: str, words: str) -> None:
    told = {one.what: one for one in look(INFO | {"SecurityOptions": [f"name=seccomp,profile={profile}"]}, "")}
    assert told["seccomp"].state == state
    assert words in told["seccomp"].text


async def test_the_gateway_has_it_too(engine) -> None:
    from ipaddress import IPv4Network

    from sandbox_console.backends.docker.gateway_config import Gateway, gateway_body
    from sandbox_console.model.spec import SandboxSpec

    spec = SandboxSpec("x", IMAGE, egress=("a.com",))
    body = gateway_body(
        Gateway("t", IPv4Network("10.9.8.0/29")), spec, IMAGE, "bridge", Path("/f"), Path("/p"), INFO, ()
    )
    [profile] = [one for one in body["HostConfig"]["SecurityOpt"] if one.startswith("seccomp=")]
    assert json.loads(profile.removeprefix("seccomp="))["defaultAction"] == "SCMP_ACT_ERRNO"
