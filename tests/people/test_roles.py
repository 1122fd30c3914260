"""What roles and labels allow, over every action there is, through the gate of a real console with a real log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sandbox_console.errors import ConsoleError, Denied, NotFound
from sandbox_console.model.access import Access, limited_to
from sandbox_console.model.action import Action, Commit, Create, OpenShell, Remove, Stop, Update, ref_of
from sandbox_console.model.actor import acting_as
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.host_action import PullImage
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.roles import forbidden
from sandbox_console.policy.rules import Deny
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.service.server_options import may_name
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.form.image_row import _folders

OURS, THEIRS = SandboxRef("fake", "local", "ours-id-0001"), SandboxRef("fake", "local", "theirs-id-001")
SEARCH, WEB = {"team": "search"}, {"team": "web"}
OF_SEARCH = Access("operator", SEARCH)


def box(ref: SandboxRef, name: str, labels: dict[str, str]) -> Sandbox:
    spec = SandboxSpec(name, image="x", labels=labels)
    return Sandbox(ref, name, Status.RUNNING, "x", spec=spec, labels=labels, managed=True)


@pytest.fixture
async def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Console]:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    backend = FakeBackend([box(OURS, "ours", SEARCH), box(THEIRS, "theirs", WEB)])
    async with open_console(Config(backend="fake"), backends=[backend]) as opened:
        yield opened


def example(kind: type[Any], ref: SandboxRef) -> Action:
    """An action of this kind, about this sandbox or its host."""
    given: dict[str, Any] = {
        "ref": ref, "backend": "fake", "host": "local", "argv": ("true",), "path": "/tmp", "port": 80,
        "image": "x", "name": "another", "snapshot": "snap", "id": "shell", "patterns": ("a.example",), "command": None,
        "spec": SandboxSpec("another", image="x", labels=SEARCH),
    }  # fmt: skip
    fields = {field.name for field in structs.fields(kind)}
    made: Action = kind(**{name: value for name, value in given.items() if name in fields})
    return made


async def attempt(console: Console, action: Action) -> None:
    """Begin an action as a face does, with every consent."""
    if isinstance(action, OpenShell):
        await console.shell(action, consent=Consent(yes=True))
    else:
        ref = ref_of(action)
        await console.perform(action, consent=Consent(yes=True, confirm=ref.id if ref else "")).result()


ACTIONS: list[type[Any]] = list(Action.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ACTIONS, ids=lambda kind: kind.verb)
async def test_a_viewer_can_do_nothing_and_each_try_is_recorded_with_the_name(
    console: Console, kind: type[Any]
) -> None:
    action = example(kind, OURS)
    with acting_as("browser:eve.1@127.0.0.1"), limited_to(lambda: Access("viewer")), pytest.raises(Denied) as denied:
        await attempt(console, action)
    entry = await console.audit_entry(denied.value.audit_id or 0)
    assert denied.value.rule == "role"
    assert (entry.attempt.actor, entry.outcome) == ("browser:eve.1@127.0.0.1", "denied")
    assert entry.attempt.action == kind.verb
    assert list((await console.list())[0]) == [box(OURS, "ours", SEARCH), box(THEIRS, "theirs", WEB)]


@pytest.mark.parametrize(
    "kind", [kind for kind in ACTIONS if "ref" in kind.__struct_fields__], ids=lambda kind: kind.verb
)
async def test_a_sandbox_without_the_label_is_not_there_for_any_action(console: Console, kind: type[Any]) -> None:
    missing = SandboxRef("fake", "local", "no-such-id-1")
    texts = []
    for ref in (THEIRS, missing):
        action = example(kind, ref)
        with acting_as("api:ada"), limited_to(lambda: Access("admin", SEARCH)), pytest.raises(ConsoleError) as raised:
            await attempt(console, action)
        assert isinstance(raised.value, NotFound), raised.value
        entry = await console.audit_entry(raised.value.audit_id or 0)
        assert (entry.attempt.actor, entry.attempt.target) == ("api:ada", str(ref))
        texts.append(f"{raised.value.message} {raised.value.hint} {entry.attempt.body}".replace(ref.id, "ID"))
        assert "theirs" not in texts[-1]
    assert texts[0].split("at_ns")[0][:60] == texts[1].split("at_ns")[0][:60]
    assert THEIRS in {sandbox.ref for sandbox in (await console.list())[0]}


def test_what_an_operator_and_an_admin_with_labels_may_not_do() -> None:
    everybody, search = Access("operator"), Access("admin", SEARCH)
    refused = {
        "operator": {kind.verb for kind in ACTIONS if forbidden(example(kind, OURS), everybody, None)},
        "admin of team=search": {kind.verb for kind in ACTIONS if forbidden(example(kind, OURS), search, None)},
        "admin": {kind.verb for kind in ACTIONS if forbidden(example(kind, OURS), Access(), None)},
    }
    images = {"remove-image", "prune-images", "load-image", "save-image"}
    assert refused == {
        "operator": images,
        "admin of team=search": images | {"restore", "remove-snapshot"},
        "admin": set(),
    }


def test_folders_of_the_machine_are_for_admins() -> None:
    had = structs.replace(box(OURS, "ours", SEARCH), spec=SandboxSpec("ours", image="x", workspace="/srv/a"))
    operator = Access("operator")
    for spec, refused in (
        (SandboxSpec("n", image="x"), False), (SandboxSpec("n", image="x", workspace="/srv/b"), True),
        (SandboxSpec("n", image="dir:/srv/root"), True), (SandboxSpec("n", image="host"), False),
    ):  # fmt: skip
        create = Create(spec, "fake", "local")
        assert bool(forbidden(create, operator, None)) is refused, spec
        assert not forbidden(create, Access(), None)
        assert not forbidden(create, Access("operator", folders=True), None)
    kept = Update(OURS, SandboxSpec("ours", image="x", workspace="/srv/a", cpus=1.0))
    assert not forbidden(kept, operator, had)
    assert forbidden(Update(OURS, SandboxSpec("ours", image="x", workspace="/srv")), operator, had)


def test_a_caller_who_is_no_admin_names_a_folder_as_an_image_only_where_a_pattern_says_so() -> None:
    for rights, anything in ((Access("operator", folders=True), False), (Access(folders=True), True)):
        with limited_to(lambda rights=rights: rights):  # type: ignore[misc]
            assert may_name("python:3", ["*"])
            assert may_name("dir:/srv/root", ["*"]) is anything
            assert may_name("dir:/srv/root", ["python:*", "dir:/srv/*"])
            assert not may_name("dir:/etc", ["dir:/srv/*"])


async def test_what_a_person_with_labels_creates_has_them_and_they_cannot_be_taken_off(console: Console) -> None:
    with limited_to(lambda: OF_SEARCH):
        made = await console.perform(Create(SandboxSpec("new", image="x"), "fake", "local")).result()
        assert made.ref is not None
        assert (await console.inspect(made.ref)).labels["team"] == "search"
        for labels in ({"team": "web"}, {"team": ""}):
            spec = SandboxSpec("other", image="x", labels=labels)
            with pytest.raises(Denied, match="team=search"):
                await console.perform(Create(spec, "fake", "local")).result()
        with pytest.raises(Denied, match="team=search"):
            await console.perform(Update(OURS, SandboxSpec("ours", image="x"))).result()
        assert {one.name for one in (await console.list())[0]} == {"ours", "new"}


async def test_a_role_that_changes_holds_for_the_next_action(console: Console) -> None:
    rights = [Access("operator")]
    with limited_to(lambda: rights[0]):
        await console.perform(Stop(OURS)).result()
        rights[0] = Access("viewer")
        with pytest.raises(Denied):
            await console.perform(Remove(OURS, force=True)).result()
        rights[0] = Access("admin", WEB)
        with pytest.raises(NotFound):
            await console.perform(Remove(OURS, force=True)).result()
    assert OURS in {one.ref for one in (await console.list())[0]}


async def test_what_concerns_everybody_and_files_of_the_machine_are_for_admins(console: Console) -> None:
    for rights in (Access("viewer"), Access("operator"), OF_SEARCH, Access("admin", SEARCH)):
        with ExitStack() as stack:
            stack.enter_context(acting_as("browser:ada.1@::1"))
            stack.enter_context(limited_to(lambda rights=rights: rights))  # type: ignore[misc]
            with pytest.raises(Denied):
                await console.templates.save("mine", {"image": "x"})
            if rights.role != "admin":
                with pytest.raises(Denied):
                    await console.ground()
                await console.passing_ground()  # of what is on its way to a browser, or from it
    assert console.templates.every() == []
    rows = await console.history(AuditQuery(limit=20, actor="browser:ada.1@::1"))
    assert sorted(entry.attempt.action for entry in rows) == ["host-files"] * 3 + [rows[-1].attempt.action] * 4
    assert {entry.outcome for entry in rows} == {"denied"}
    await console.ground()


@pytest.mark.parametrize(
    "name", ["base", "base:latest", "docker.io/library/base", "localhost/base:latest", "base@sha256:ab"]
)
async def test_only_an_admin_commits_to_a_name_that_everybodys_sandboxes_are_made_from(
    console: Console, name: str
) -> None:
    await console.perform(PullImage("fake", "local", "docker.io/library/base:latest")).result()
    for rights in (Access("operator"), OF_SEARCH, Access("admin", SEARCH)):
        with limited_to(lambda rights=rights: rights):  # type: ignore[misc]
            assert isinstance(await console.decide(Commit(OURS, name)), Deny)
            with pytest.raises(Denied, match="to replace it concerns everybody") as denied:
                await console.perform(Commit(OURS, name)).result()
            assert denied.value.rule == "role"
            await console.perform(Commit(OURS, f"mine:{rights.role}-{len(rights.labels)}")).result()
    await console.perform(Commit(OURS, name)).result()


def test_every_action_with_a_sandbox_names_it() -> None:
    """`roles` and the hiding rely on it: an action is about a sandbox, makes one, or is about a host."""
    for kind in ACTIONS:
        action = example(kind, OURS)
        assert ref_of(action) == OURS or not hasattr(action, "ref")


def test_the_form_names_no_folders_of_the_machine_to_others_than_admins(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    assert _folders(f"{tmp_path}/") == [f"{tmp_path}/private"]
    for role in ("viewer", "operator"):
        with limited_to(lambda role=role: Access(role)):  # type: ignore[misc]
            assert _folders(f"{tmp_path}/") == []
