"""Ours is this state directory's: another console's containers on the same engine are somebody else's."""

from __future__ import annotations

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.labels import INSTALLATION, MANAGED, is_anothers
from sandbox_console.errors import BackendError
from sandbox_console.model.spec import SandboxSpec

ours_and_theirs = [
    ({}, "", False), ({}, "a", False), ({MANAGED: "1"}, "a", False), ({MANAGED: "1", INSTALLATION: "a"}, "a", False),
    ({MANAGED: "1", INSTALLATION: "a"}, "", False), ({MANAGED: "1", INSTALLATION: ""}, "b", False),
    ({MANAGED: "1", INSTALLATION: "a"}, "b", True), ({INSTALLATION: "a"}, "b", False),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "ours", "expected"), ours_and_theirs)
def test_who_made_it(labels, ours, expected):
    assert is_anothers(labels, ours) is expected


def test_an_id_is_made_once_and_kept(tmp_path):
    one, two = Installation(tmp_path / "a"), Installation(tmp_path / "b")
    assert one.id == ""
    assert one.made() == one.made() == Installation(tmp_path / "a").id != two.made()
    assert Installation(None).made() == ""
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["installation"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be kept"):
        Installation(tmp_path / "file").made()


@requires("docker")
async def test_two_consoles_share_an_engine(engine, permit, unique, tmp_path):
    mine, theirs = DockerBackend("default", tmp_path / "mine"), DockerBackend("default", tmp_path / "theirs")
    spec = SandboxSpec(unique(), IMAGE, ("sleep", "1000"))
    for backend in (mine, theirs):
        await backend.open()
    made = await mine.create(await permit("create"), spec, (), lambda _: None)
    other = await theirs.create(
        await permit("create"), SandboxSpec(unique(), IMAGE, ("sleep", "1")), (), lambda _: None
    )
    try:
        for rows in (await mine.list(), await mine.brief(), [await mine.inspect(made), await mine.inspect(other)]):
            told = {row.ref.id: (row.managed, row.maker) for row in rows}
            assert told[made.id] == (True, "")
            assert told[other.id] == (False, "another console")
        assert (await theirs.inspect(made)).spec is None
        assert (await mine.inspect(made)).spec == spec
    finally:
        for ref in (made, other):
            await mine.remove(await permit("remove"), ref, force=True)
        for backend in (mine, theirs):
            await backend.close()
