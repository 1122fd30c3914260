"""What the configuration gives back of the walls, as seen from inside, and what it never can."""

from __future__ import annotations

import contextlib

import pytest
from tests.docker.test_create import sh
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
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
