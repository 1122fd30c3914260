"""What an edit would drop, on a real container: files with their sizes, processes, and the folders left out."""

from __future__ import annotations

import pytest
from tests.docker.test_service import HERE, console, done
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.errors import Unsupported
from sandbox_console.model import action
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.reads.losses import Losses, LostFile
from sandbox_console.tui.form.loss_text import loss_text

__all__ = ["console"]

pytestmark = requires("docker")
WRITES = "head -c 300000 /dev/zero > /srv-big; mkdir -p /srv/a; echo x > /srv/a/small; sleep 900 & sleep 901 & wait"


async def test_files_and_processes_are_counted(console, unique, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    spec = SandboxSpec(unique(), IMAGE, ("sh", "-c", WRITES), workspace=str(tmp_path / "kept"), user="0")
    ref = (await console.perform(action.Create(spec, *HERE)).result()).ref
    try:
        await done(console, action.Exec(ref, ("sh", "-c", "echo kept > /workspace/file; sleep 1")))
        sandbox = await console.inspect(ref)
        found = await console.losses(sandbox)
        assert (found.files_unknown, found.processes_unknown) == ("", "")
        sizes = {one.path: one.size for one in found.files}
        assert sizes["/srv-big"] == 300_000
        assert sizes["/srv/a/small"] == 2
        assert not [path for path in sizes if path.startswith("/workspace") or path in ("/srv", "/srv/a")]
        assert found.files[0].path == "/srv-big", "the largest comes first"
        assert found.processes >= 2
        words = loss_text(found, sandbox, commits="", at=0.0).plain
        assert "293K" in words
        assert "commit first" in words
        assert f"sandbox-console cp {sandbox.name}:/srv-big ." in words
    finally:
        await done(console, action.Remove(ref, force=True))


@pytest.mark.parametrize("silent", ["changes", "processes"])
async def test_what_is_not_known_is_told_with_the_reason(console, unique, silent, monkeypatch):
    spec = SandboxSpec(unique(), IMAGE, ("sleep", "900"))
    ref = (await console.perform(action.Create(spec, *HERE)).result()).ref
    try:
        sandbox = await console.inspect(ref)

        async def refused(_):
            raise Unsupported("it is off")

        monkeypatch.setattr(console.inside, silent, refused)
        found = await console.losses(sandbox)
        words = loss_text(found, sandbox, commits="it is off", at=0.0).plain
        assert ("not known: it is off" in words) == (silent == "changes")
        assert ("its other processes" in words) == (silent == "processes")
    finally:
        await done(console, action.Remove(ref, force=True))


def test_a_path_cannot_act_on_the_terminal():
    box = Sandbox(SandboxRef("docker", "default", "x"), "box", Status.RUNNING, "x")
    words = loss_text(Losses((LostFile("/a\x1b[31m\n/b", 5),)), box, commits="", at=0.0).plain
    assert "\x1b" not in words
    assert "1 files, 5B" in words
