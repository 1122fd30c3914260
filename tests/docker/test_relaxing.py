"""What the configuration gives back of the walls, as seen from inside, and what it never can."""

from __future__ import annotations

import contextlib

import pytest
from msgspec import structs
from tests.docker.test_create import sh
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console import Unsupported
from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.hardening import GIVEN_BACK
from sandbox_console.errors import ConfigError, NotFound
from sandbox_console.model.spec import SandboxSpec

_CHOWN, _SETUID, _PTRACE = 0, 7, 19  # capabilities(7), as bits


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("CHOWN", "a list"),
        ([1], "a list"),
        (["NET_RAW"], "NET_RAW"),
        (["chown", "cap_sys_admin"], "SYS_ADMIN"),
        (["ALL"], "ALL"),
        ([""], "capability"),
    ],
)
def test_what_takes_a_wall_down_is_refused(tmp_path, asked, words):
    with pytest.raises(ConfigError, match=words) as caught:
        DockerProvider.backends(BackendSettings(tmp_path, {"capabilities": asked}))
    assert "CHOWN" in caught.value.hint


def test_none_of_those_that_can_be_given_reaches_out():
    assert GIVEN_BACK.isdisjoint(
        {"NET_RAW", "NET_ADMIN", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "BPF", "DAC_READ_SEARCH"}
    )


@requires("docker")
async def test_root_in_a_sandbox_has_just_what_is_given(engine, permit, unique, tmp_path):
    options = {"capabilities": ["cap_chown", "SETUID", "SYS_PTRACE"]}
    [backend] = DockerProvider.backends(BackendSettings(tmp_path, options))
    await backend.open()
    ref = None
    try:
        for user, bits in (("0", 1 << _CHOWN | 1 << _SETUID | 1 << _PTRACE), ("1000", 0)):
            spec = SandboxSpec(unique(), IMAGE, ("sleep", "1000"), user=user)
            ref = await backend.create(await permit("create"), spec, [], lambda _: None)
            await backend.start(await permit("start"), ref, [])
            out, _, _ = await sh(backend, permit, ref, "grep CapEff /proc/self/status; grep CapEff /proc/1/status")
            assert {int(line.split()[1], 16) for line in out.splitlines()} == {bits}
            facts = {fact.field: fact.value for fact in (await backend.inspect(ref)).effective}
            assert facts["capabilities"] == "only CHOWN, SETUID, SYS_PTRACE"
            assert facts["no_new_privileges"] == "yes"
            await backend.remove(await permit("remove"), ref, force=True)
    finally:
        if ref is not None:
            with contextlib.suppress(NotFound):
                await backend.remove(await permit("remove"), ref, force=True)
        await backend.close()


@requires("docker")
async def test_root_that_enters_a_users_sandbox_has_what_its_main_process_has(engine, permit, unique, tmp_path):
    [backend] = DockerProvider.backends(BackendSettings(tmp_path, {"capabilities": ["CHOWN", "SETUID"]}))
    await backend.open()
    ref = await backend.create(await permit("create"), SandboxSpec(unique(), IMAGE, ("sleep", "1000")), [], print)
    try:
        await backend.start(await permit("start"), ref, [])
        for user in ("root", "0", None):  # the engine gives an exec no more, but by a privileged one, which has all
            out, _, _ = await sh(backend, permit, ref, "grep CapEff /proc/self/status", user=user)
            assert int(out.split()[1], 16) == 0, user
    finally:
        await backend.remove(await permit("remove"), ref, force=True)
        await backend.close()


@requires("docker")
@pytest.mark.parametrize(("options", "mib"), [({}, 512), ({"tmp_mib": 3}, 3)])
async def test_tmp_is_as_large_as_the_option_says(engine, permit, unique, tmp_path, options, mib):
    [backend] = DockerProvider.backends(BackendSettings(tmp_path, options))
    await backend.open()
    ref = await backend.create(await permit("create"), SandboxSpec(unique(), IMAGE, ("sleep", "1000")), [], print)
    try:
        await backend.start(await permit("start"), ref, [])
        out, _, _ = await sh(backend, permit, ref, "df -k /tmp | tail -n 1")
        assert int(out.split()[1]) == mib * 1024
    finally:
        await backend.remove(await permit("remove"), ref, force=True)
        await backend.close()


@pytest.mark.parametrize("asked", ["512", 0, True, 1.5])
def test_a_size_of_tmp_that_is_none_is_refused(tmp_path, asked):
    with pytest.raises(ConfigError, match="tmp_mib"):
        DockerProvider.backends(BackendSettings(tmp_path, {"tmp_mib": asked}))


@requires("docker")
async def test_a_time_limit_that_nothing_enforces_is_refused_and_accepted_by_best_effort(engine, unique, permit):
    backend = DockerBackend("default")  # without a folder for the process that would enforce it
    await backend.open()
    limits = {"max_duration_s": 60.0, "idle_timeout_s": 30.0}
    strict = SandboxSpec(unique(), IMAGE, ("sleep", "1000"), **limits)
    try:
        with pytest.raises(Unsupported, match="max_duration"):
            await backend.create(await permit("create"), strict, (), lambda _: None)
        loose = structs.replace(strict, limits="best-effort")
        ref = await backend.create(await permit("create"), loose, (), lambda _: None)
        await backend.start(await permit("start"), ref, ())
        facts = {fact.field: fact for fact in (await backend.inspect(ref)).effective}
        assert [(facts[name].value, facts[name].enforced) for name in limits] == [("not enforced", False)] * 2
        await backend.remove(await permit("remove"), ref, force=True)
    finally:
        await backend.close()
