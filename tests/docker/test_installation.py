"""Ours is this state directory's: another console's containers on the same engine are somebody else's."""

from __future__ import annotations

import json

import pytest
from tests.support.engine import IMAGE, busybox_tree
from tests.support.require import requires

from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.labels import INSTALLATION, MADE, MANAGED, SPEC, is_anothers, own_labels
from sandbox_console.errors import BackendError
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec

ours_and_theirs = [
    ({}, "", False), ({}, "a", False), ({MANAGED: "1"}, "a", True), ({MANAGED: "1", INSTALLATION: "a"}, "a", False),
    ({MANAGED: "1", INSTALLATION: "a"}, "", True), ({MANAGED: "1", INSTALLATION: ""}, "b", True), ({MANAGED: "1"}, "", False),
    ({MANAGED: "1", INSTALLATION: "a"}, "b", True), ({INSTALLATION: "a"}, "b", False),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "ours", "expected"), ours_and_theirs)
def test_who_made_it(labels, ours, expected):
    assert is_anothers(labels, ours) is expected


def test_an_id_is_made_once_and_kept(tmp_path):
    one, two = Installation(tmp_path / "a"), Installation(tmp_path / "b")
    assert len({one.id, Installation(tmp_path / "a").id, two.id, ""}) == 4, "until there is one, no sandbox carries it"
    assert not list(tmp_path.iterdir())
    assert one.made() == one.made() == Installation(tmp_path / "a").id != two.made()
    assert Installation(None).made() == ""
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["installation"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be kept"):
        Installation(tmp_path / "file").made()


def test_labels_that_an_image_gave_are_not_a_containers_own():
    image = {MANAGED: "1", MADE: "x", INSTALLATION: "a", SPEC: "{}", "team": "core"}
    assert own_labels(image, image) == {"team": "core"}
    ours = image | {MADE: "y"}
    assert own_labels(ours, image) == own_labels(ours, {}) == ours
    by_hand = {MANAGED: "1", SPEC: "{}"}
    assert own_labels(by_hand, by_hand) == {}
    assert own_labels(ours, by_hand) == ours


@requires("docker")
async def test_a_container_whose_labels_are_its_images_is_not_ours(engine, permit, unique, tmp_path):
    """Run by hand: from an image that `docker commit` made of a sandbox, and from one whose author knew our labels."""
    mine, spec = (
        DockerBackend("default", tmp_path),
        SandboxSpec(unique(), IMAGE, ("sleep", "1000"), labels={"team": "x"}),
    )
    await mine.open()
    made = await mine.create(await permit("create"), spec, (), lambda _: None)
    copy, forged = f"{unique()}:copy", f"{unique()}:forged"
    engine.docker("commit", made.id, copy)
    labels = engine.inspect(made.id)["Config"]["Labels"]
    assert copy_labels(engine, copy) == labels
    labels = {key: value for key, value in labels.items() if key not in (MADE, INSTALLATION)}
    changes = [word for key, value in labels.items() for word in ("-c", f"LABEL {key}={json.dumps(value)}")]
    engine.docker("import", *changes, "-", forged, stdin=busybox_tree())
    by_hand = [
        engine.docker("run", "-d", "--network", "none", "--name", unique(), image, "sleep", "1000")
        for image in (copy, forged)
    ]
    of_the_copy = await mine.create(
        await permit("create"), SandboxSpec(unique(), copy, ("sleep", "1")), (), lambda _: None
    )
    try:
        for rows in (await mine.list(), await mine.brief(), [await mine.inspect(SandboxRef("docker", "default", one))
                     for one in (made.id, of_the_copy.id, *by_hand)]):  # fmt: skip
            told = {row.ref.id: row for row in rows}
            assert told[made.id].managed
            assert told[of_the_copy.id].managed, "ours, whatever its image carries"
            for one in map(told.get, by_hand):
                assert (one.managed, one.spec, one.maker) == (False, None, "")
                assert not any(key.startswith("sandbox-console") for key in one.labels)
    finally:
        engine.docker("rm", "-f", made.id, of_the_copy.id, *by_hand)
        engine.docker("rmi", "-f", copy, forged)
        await mine.close()


def copy_labels(engine, image):
    return json.loads(engine.docker("image", "inspect", "-f", "{{json .Config.Labels}}", image))


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
