"""A NAME never hits the wrong sandbox and is never lost, whatever host answers: real time only where a host hangs."""

from __future__ import annotations

import asyncio
import fcntl
import json
from contextlib import aclosing

import pytest
from msgspec import structs

from sandbox_console.errors import BackendUnreachable, ConfigError, Conflict, NotFound
from sandbox_console.model.action import Create, Remove, Rename
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import MADE_BY, SandboxSpec
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.service.bootstrap import timeouts
from sandbox_console.service.reads import known_names
from sandbox_console.service.reads.known_names import KnownNames
from sandbox_console.testing.fake_backend import FakeBackend

HANGS = 3600.0


def named(backend, id_, name):
    return Sandbox(SandboxRef(backend, "local", id_), name, Status.RUNNING, spec=SandboxSpec(name, image="x"))


@pytest.fixture
def near(home):
    return FakeBackend([named("near", "aaaaaa11", "cx"), named("near", "aaaaaa12", "only-near")], name="near")


@pytest.fixture
def far(home):
    return FakeBackend([named("far", "bbbbbb11", "cx"), named("far", "bbbbbb12", "only-far")], name="far")


@pytest.fixture
def config():
    return Config(backends={"far": {"timeout_s": 0.2}})


def freeze(backend):
    for verb in ("open", "list", "inspect"):
        backend.faults.verbs[verb] = HANGS


def thaw(backend):
    backend.faults.verbs.clear()


async def seen(config, *backends):
    """One console that lists and ends: what it saw is kept."""
    async with open_console(config, backends=backends) as console:
        await console.list()


@pytest.mark.parametrize("away", ["frozen", "gone"])
async def test_a_name_that_a_silent_host_held_is_not_acted_on_elsewhere(near, far, config, away):
    await seen(config, near, far)
    if away == "frozen":
        freeze(far)
    else:
        far.faults.dead = True
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(BackendUnreachable, match="far does not answer and held 'cx' too") as caught:
            await console.find("cx", changing=True)
        assert "near/local/aaaaaa11" in caught.value.hint
        assert "--only-answering" in caught.value.hint
        [found] = await console.find_all(["cx"])
        assert [health.backend for health in found.doubts] == ["far"]
        for word in ("near/local/aaaaaa11", "near:cx", "only-near", "aaaaaa12"):
            assert (await console.find(word, changing=True)).ref.backend == "near"
        assert (await console.find("cx", changing=True, only_answering=True)).ref.backend == "near"


@pytest.mark.parametrize("changing", [True, False])
async def test_a_name_that_lives_on_a_silent_host_only_is_not_called_gone(near, far, config, changing):
    await seen(config, near, far)
    far.faults.dead = True
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(BackendUnreachable, match="far does not answer and held 'only-far'"):
            await console.find("only-far", changing=changing)
        with pytest.raises(BackendUnreachable, match="held 'bbbbbb'"):
            await console.find("bbbbbb", changing=changing)
        with pytest.raises(NotFound):
            await console.find("only-far", changing=changing, only_answering=True)
        with pytest.raises(NotFound):
            await console.find("never-was", changing=changing)


async def test_a_host_that_never_answered_counts_as_empty_unless_it_hangs(near, far, config):
    far.faults.dead = True
    async with open_console(config, backends=[near, far]) as console:
        assert (await console.find("cx", changing=True)).ref.backend == "near"
        with pytest.raises(NotFound):
            await console.find("only-far")
    far.faults.dead = False
    freeze(far)
    async with open_console(config, backends=[near, far]) as console:
        for word in ("cx", "only-far"):
            with pytest.raises(BackendUnreachable, match="far does not answer and may hold"):
                await console.find(word, changing=True)


async def test_a_host_that_fails_its_list_may_hold_the_name(near, far, config):
    far.faults.verbs["list"] = RuntimeError("a bug")
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(BackendUnreachable, match="far does not answer and may hold 'cx' too"):
            await console.find("cx", changing=True)


async def test_what_was_made_since_the_list_is_known_and_what_was_removed_too(near, far, config):
    await seen(config, near, far)
    async with open_console(config, backends=[near, far]) as console:
        made = await console.perform(Create(SandboxSpec("new", image="x"), "far", "local")).result()
        other = await console.perform(Create(SandboxSpec("old", image="x"), "far", "local")).result()
        await console.list()
        await console.perform(Rename(other.ref, "newer")).result()
        await console.perform(Remove(SandboxRef("far", "local", "bbbbbb12"), force=True)).result()
    far.faults.dead = True
    async with open_console(config, backends=[near, far]) as console:
        for word in ("new", "newer", made.ref.id):
            with pytest.raises(BackendUnreachable, match="held"):
                await console.find(word)
        for word in ("only-far", "old"):
            with pytest.raises(NotFound):
                await console.find(word)


async def test_a_create_that_a_host_fell_silent_over_may_have_made_it(near, far, config):
    await seen(config, near, far)
    far.faults.verbs["create"] = RuntimeError("the connection was lost")
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(Exception, match="the connection was lost"):
            await console.perform(Create(SandboxSpec("new", image="x"), "far", "local")).result()
    far.faults.dead = True
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(BackendUnreachable, match="held 'new'"):
            await console.find("new")


async def test_where_no_list_is_kept_the_audit_log_tells(near, far, config, home):
    async with open_console(config, backends=[near, far]) as console:
        await console.perform(Create(SandboxSpec("new", image="x"), "far", "local")).result()
        gone = await console.perform(Create(SandboxSpec("gone", image="x"), "far", "local")).result()
        await console.perform(Remove(gone.ref, force=True)).result()
    for file in (home / "state" / "names").glob("*.json"):
        file.unlink()
    far.faults.dead = True
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(BackendUnreachable, match="far does not answer and may hold 'new'"):
            await console.find("new")
        for word in ("gone", "ne"):
            with pytest.raises(NotFound):
                await console.find(word)


async def test_a_name_that_a_silent_host_holds_is_taken(near, far, config):
    await seen(config, near, far)
    async with open_console(config, backends=[near, far]) as console:
        await console.refuse_held("only-far")  # it answers: that there are two of a name on two hosts is allowed
    freeze(far)
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(Conflict, match="far does not answer and held 'only-far'") as caught:
            await console.refuse_held("only-far")
        assert "--only-answering" in caught.value.hint
        await console.refuse_held("free")


async def test_a_frozen_host_that_does_not_hold_the_name_is_not_waited_for(near, far):
    await seen(Config(), near, far)
    freeze(far)  # for longer than a test may take: what is found was not waited for
    async with open_console(Config(backends={"far": {"timeout_s": HANGS}}), backends=[near, far]) as console:
        assert (await console.find("only-near", changing=True)).ref.id == "aaaaaa12"
        async with aclosing(console.list_as_answered()) as parts:
            first, waiting = await anext(parts)
        assert {one.name for one in first[0]} == {"cx", "only-near"}
        assert waiting == [("far", "local")]


async def test_a_frozen_host_is_not_waited_for_to_learn_that_a_name_to_be_made_is_nowhere(near, far):
    await seen(Config(), near, far)
    freeze(far)
    async with open_console(Config(backends={"far": {"timeout_s": HANGS}}), backends=[near, far]) as console:
        [found] = await console.find_all(["new"], changing=True, creating=True)
    assert isinstance(found, NotFound)
    assert "not asked: far" in found.message


async def test_a_host_that_was_silent_is_not_waited_for_to_learn_that_a_name_is_nowhere(near, far, config):
    await seen(config, near, far)
    freeze(far)
    await seen(config, near, far)
    async with open_console(Config(backends={"far": {"timeout_s": HANGS}}), backends=[near, far]) as console:
        [found] = await console.find_all(["new"], changing=True)
        assert isinstance(found, NotFound)
        assert "not asked: far (it did not answer last time)" in found.message
        found = await console.find("only-near", changing=True, only_answering=True)
        assert found.ref.id == "aaaaaa12"


def of_file(sandbox, file):
    return structs.replace(sandbox, managed=True, labels={MADE_BY: file})


async def test_a_frozen_host_without_sandboxes_of_a_file_is_not_waited_for(near, far, config):
    near.sandboxes["aaaaaa12"] = of_file(near.sandboxes["aaaaaa12"], "file#1")
    far.sandboxes["bbbbbb12"] = of_file(far.sandboxes["bbbbbb12"], "file#2")
    await seen(config, near, far)
    freeze(far)
    async with open_console(Config(backends={"far": {"timeout_s": HANGS}}), backends=[near, far]) as console:
        found, doubts = await console.made_by("file#1")
        assert ([one.name for one in found], doubts) == (["only-near"], [])
        assert console.known_of("file#2") == ["only-far"]
    async with open_console(config, backends=[near, far]) as console:
        found, doubts = await console.made_by("file#2")
        assert (found, [one.backend for one in doubts]) == ([], ["far"])
        assert await console.made_by("file#2", only_answering=True) == ([], [])
        assert await console.made_by("file#2", "near") == ([], [])


async def test_a_list_of_an_earlier_version_says_nothing_of_files(near, far, config, home):
    await seen(config, near, far)
    stored = home / "state" / "names" / "far%2Flocal.json"
    told = json.loads(stored.read_bytes())
    stored.write_text(json.dumps({"answered_at": told["answered_at"], "names": [one[:3] for one in told["names"]]}))
    freeze(far)
    async with open_console(config, backends=[near, far]) as console:
        assert [one.backend for one in (await console.made_by("file#1"))[1]] == ["far"]
        with pytest.raises(BackendUnreachable, match="held 'only-far'"):
            await console.find("only-far")


async def test_what_up_asked_a_host_for_before_it_fell_silent_may_be_there(near, far, config):
    await seen(config, near, far)
    far.faults.verbs["create"] = RuntimeError("the connection was lost")
    async with open_console(config, backends=[near, far]) as console:
        spec = SandboxSpec("new", image="x", labels={MADE_BY: "file#1"})
        with pytest.raises(Exception, match="the connection was lost"):
            await console.perform(Create(spec, "far", "local")).result()
    freeze(far)
    async with open_console(config, backends=[near, far]) as console:
        assert [one.backend for one in (await console.made_by("file#1"))[1]] == ["far"]
        assert (await console.made_by("file#2"))[1] == []


async def test_one_that_was_silent_is_asked_last_where_to_make_a_sandbox(near, far, config):
    freeze(far)
    await seen(config, near, far)
    async with (
        open_console(Config(backends={"far": {"timeout_s": HANGS}}), backends=[far, near]) as console,
        aclosing(console.healths(console.places)) as healths,
    ):
        assert (await anext(healths)).backend == "near"


async def test_all_names_of_a_command_take_one_list_of_each_host(near, far, config):
    boxes = [named("near", f"id-{number:06}", f"box-{number}") for number in range(1000)]
    lists = []

    class Counting(FakeBackend):
        async def list(self):
            lists.append(1)
            return await super().list()

    near = Counting(boxes, name="near")
    async with open_console(config, backends=[near, far]) as console:
        found = await console.find_all([*(box.name for box in boxes), "none"], changing=True)
    assert [one.sandbox.name for one in found[:-1]] == [box.name for box in boxes]
    assert isinstance(found[-1], NotFound)
    assert len(lists) == 1


async def test_a_damaged_or_unwritable_record_is_as_none(near, far, config, home):
    await seen(config, near, far)
    for file in (home / "state" / "names").glob("*.json"):
        assert "only-" in json.dumps(json.loads(file.read_bytes()))
        assert file.stat().st_mode & 0o777 == 0o600
        file.write_bytes(b'{"names": 3')
    async with open_console(config, backends=[near, far]) as console:
        assert (await console.find("only-far", changing=True)).ref.backend == "far"
    folder = home / "state" / "names"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    async with open_console(config, backends=[near, far]) as console:
        assert (await console.find("only-far", changing=True)).ref.backend == "far"


async def test_a_console_that_was_stopped_with_the_lock_holds_nothing_up(near, far, config, home, monkeypatch):
    monkeypatch.setattr(known_names, "LOCK_S", 0.05)
    await seen(config, near, far)
    with (home / "state" / "names" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        async with asyncio.timeout(30), open_console(config, backends=[near, far]) as console:
            assert (await console.find("only-far", changing=True)).ref.backend == "far"
            await console.perform(Remove(SandboxRef("far", "local", "bbbbbb11"), force=True)).result()


async def test_an_inspect_of_a_frozen_host_ends(near, far, config):
    freeze(far)
    async with open_console(config, backends=[near, far]) as console:
        with pytest.raises(BackendUnreachable, match=r"far does not answer: no answer within 0\.2 s"):
            await console.perform(Remove(SandboxRef("far", "local", "bbbbbb11")), consent=Consent(yes=True)).result()


def test_timeouts_are_a_number_or_one_for_each_host():
    one, two = FakeBackend(name="far", host="a"), FakeBackend(name="far", host="b")
    for table, expected in (
        ({}, {}),
        ({"timeout_s": 3}, {("far", "a"): 3.0, ("far", "b"): 3.0}),
        ({"timeout_s": {"b": 0.5, "elsewhere": 1}}, {("far", "b"): 0.5}),
    ):
        assert timeouts(Config(backends={"far": table}), [one, two]) == expected
    for wrong in (0, -1, "3", True, {"a": None}):
        with pytest.raises(ConfigError, match=r"backends\.far\.timeout_s"):
            timeouts(Config(backends={"far": {"timeout_s": wrong}}), [one, two])


def test_a_list_keeps_what_was_asked_for_since_it_began(tmp_path):
    names, key = KnownNames(tmp_path / "names"), ("docker", "a/b c")
    names.asked(key, "before")
    names.asked(key, "since")
    names.listed(key, [named("docker", "cccccc11", "listed")], names.of(key).names[1].at)
    known = KnownNames(tmp_path / "names").of(key)
    assert not known.excludes("since")
    assert known.excludes("before")
    assert known.holds("listed")
    assert known.holds("cccccc")
    assert not known.holds("ccccc")  # too short for an id
    names.gone(key, "cccccc11")
    assert KnownNames(tmp_path / "names").of(key).excludes("listed")
    assert structs.asdict(known)["silent"] is False


async def test_a_host_that_gives_its_list_is_asked_nothing_else_for_a_name(near, far, monkeypatch):
    """Its health would cost `exec` a look at programs, kernel and versions: 100 ms for each backend."""
    asked = []

    async def health(backend):
        asked.append(backend.name)
        raise AssertionError

    monkeypatch.setattr(FakeBackend, "health", health)
    async with open_console(backends=[near, far]) as console:
        assert (await console.find("only-near", changing=True)).ref.backend == "near"
        with pytest.raises(NotFound, match=r"no sandbox is called 'nobody'$"):
            await console.find("nobody")
    assert asked == []
