"""The TUI's keys on a real engine: another name, an image of it, its terminal, limits of another tool's; images."""

from __future__ import annotations

import io
import os
import tarfile

import pytest
from tests.support.engine import IMAGE
from tests.support.registry import registry
from tests.support.require import requires
from tests.tui.app.scene import screen_text, until
from textual.widgets import Input, Static

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.action import Create, Remove
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.log import LogQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.images.images_screen import ImagesScreen
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.shell.attach_screen import AttachScreen
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

pytestmark = requires("docker")

__all__ = ["registry"]


@pytest.fixture
async def shown(engine, tmp_path, monkeypatch):
    """The app on the engine, and its pilot."""
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    async with open_console(Config(), backends=[DockerBackend("default")]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.fleet.health and all(one.ok for one in app.fleet.health.values()))
            yield app, pilot


@pytest.fixture
def theirs(engine, unique):
    """A container of the docker CLI with a shell on a terminal and 64 MiB of memory."""
    name = unique()
    id_ = engine.docker("run", "-dit", "--network", "none", "--memory", "64m", "--name", name, IMAGE, "sh")
    yield id_
    engine.docker("rm", "-f", id_)


async def select(app, pilot, id_):
    def there():
        return [one.ref for one in app.fleet.sandboxes.values() if one.ref.id == id_]

    await until(pilot, there)
    app.main.table.move_to(there()[0])
    await pilot.pause()


async def fill(app, pilot, screen, text):
    await until(pilot, lambda: isinstance(app.screen, screen) and app.screen.is_mounted)
    app.screen.query_one(Input).value = text
    await pilot.pause()
    await pilot.press("enter")


async def ends(app, *verbs):
    found = {one.attempt.action: one.end and str(one.end.outcome) for one in await app.service.history(AuditQuery())}
    assert {verb: found.get(verb) for verb in verbs} == dict.fromkeys(verbs, "ok")


async def test_another_tools_container_by_keys(shown, theirs, engine, unique):
    app, pilot = shown
    name, image = unique(), f"{unique()}:1"
    await select(app, pilot, theirs)
    await pilot.press("F")
    await fill(app, pilot, ConfirmScreen, theirs)
    await until(pilot, lambda: isinstance(app.screen, AttachScreen))
    view = app.screen.query_one(TerminalView)
    await until(pilot, lambda: "#" in view.screen_text())
    await pilot.press(*"stty size", "enter")
    await until(pilot, lambda: f"{view.size.height} {view.size.width}" in view.screen_text())
    await pilot.press("ctrl+right_square_bracket")
    await until(pilot, lambda: app.screen is app.main and not app.service._work._tasks)
    assert engine.inspect(theirs)["State"]["Running"], "it was let go of"
    engine.docker("exec", theirs, "touch", "/made")
    await pilot.press("U")
    await until(pilot, lambda: "A /made" in screen_text(app))
    await pilot.press("escape")

    await pilot.press("ctrl+r")
    await fill(app, pilot, AskScreen, name)
    await fill(app, pilot, ConfirmScreen, theirs)
    await until(pilot, lambda: engine.inspect(theirs)["Name"] == f"/{name}" and not app.fleet.busy)
    await pilot.press("O")
    await fill(app, pilot, AskScreen, image)
    await fill(app, pilot, ConfirmScreen, theirs)
    try:
        await until(pilot, lambda: engine.docker("images", "-q", image))
        await until(pilot, lambda: not app.fleet.busy)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, FormScreen) and app.screen.is_mounted)
        assert app.screen.query_one("#field-memory_mib", Input).value == "64M"
        assert app.screen.query_one("#field-image", Input).disabled
        app.screen.query_one("#field-pids", Input).value = "33"
        await until(pilot, lambda: "● live" in screen_text(app))
        await pilot.press("ctrl+s")
        await fill(app, pilot, ConfirmScreen, theirs)
        await until(pilot, lambda: engine.inspect(theirs)["HostConfig"]["PidsLimit"] == 33)
        assert engine.inspect(theirs)["HostConfig"]["Memory"] == 64 << 20
        await until(pilot, lambda: app.screen is app.main and not app.service._work._tasks and not app.fleet.busy)
        await ends(app, "attach", "rename", "commit", "update")
        await pilot.press("D")
        await fill(app, pilot, AskScreen, "before")
        await until(pilot, lambda: "need CRIU" in " ".join(text for _, _, text in app.message_log))
    finally:
        engine.docker("rmi", "-f", image)


async def test_images_by_keys(shown, registry, engine, unique):
    app, pilot = shown
    helper = engine.docker("create", "--network", "none", IMAGE, "true")
    local, nameless = f"{unique()}:1", f"{unique()}:2"
    for name in (local, nameless, nameless):  # the second takes the first one's name
        engine.docker("cp", "-", f"{helper}:/", stdin=_tar(os.urandom(300_000)))
        engine.docker("commit", helper, name)
    engine.docker("rm", helper)
    reference = registry.push(local, f"team/{unique()}:1")
    engine.docker("rmi", local)
    try:
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ImagesScreen) and nameless in screen_text(app))
        await pilot.press("p")
        await fill(app, pilot, AskScreen, reference)
        await until(pilot, lambda: [row for row in _rows(app) if row.key[2] == reference])
        app.screen.query_one(FleetTable).move_to(next(row.key for row in _rows(app) if row.key[2] == reference))
        await pilot.press("delete")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen) and app.screen.is_mounted)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, ImagesScreen) and reference not in screen_text(app))
        assert not engine.docker("images", "-q", reference)

        before = engine.docker("images", "-q", "--filter", "dangling=true").split()
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, MenuScreen) and "frees" in screen_text(app))
        assert f"{len(before)} images, frees" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen) and app.screen.is_mounted)
        await pilot.press("y")
        await until(pilot, lambda: not engine.docker("images", "-q", "--filter", "dangling=true"))
        await until(pilot, lambda: not app.service._work._tasks)
        assert engine.docker("images", "-q", nameless), "what has a name stays"
        await ends(app, "pull", "remove-image", "prune-images")
    finally:
        engine.docker("rmi", "-f", nameless)


async def test_the_form_pulls_an_image_layer_by_layer_cancels_in_place_and_pins_it(shown, registry, engine, unique):
    app, pilot = shown
    helper, local = engine.docker("create", "--network", "none", IMAGE, "true"), f"{unique()}:1"
    engine.docker("cp", "-", f"{helper}:/", stdin=_tar(os.urandom(60_000_000)))
    engine.docker("commit", helper, local)
    engine.docker("rm", helper)
    reference = registry.push(local, f"team/{unique()}:1")
    engine.docker("rmi", local)
    try:
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, FormScreen))
        line = app.screen.query_one("#field-image", Input)
        line.focus()
        line.value = reference
        await until(pilot, lambda: "not here; it is pulled" in screen_text(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "layers, Ctrl+L cancels" in screen_text(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: any("The pull is cancelled" in text for _, _, text in app.message_log))
        assert not engine.docker("images", "-q", reference)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "● here:" in screen_text(app), limit_s=90)
        assert "linux/" in screen_text(app)
        await pilot.press("f5")
        assert line.value.startswith(f"{reference.removesuffix(':1')}@sha256:")
    finally:
        engine.docker("rmi", "-f", reference)


def _rows(app):
    return list(app.screen.query_one(FleetTable).rows) if isinstance(app.screen, ImagesScreen) else []


def _tar(data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("added")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def test_a_search_of_a_log_agrees_with_logs(shown, engine, unique, monkeypatch):
    monkeypatch.setattr("sandbox_console.tui.logs.logs_tab.TAIL", 1000)
    app, pilot = shown
    id_ = engine.docker("run", "-d", "--network", "none", "--name", unique(), IMAGE, "sh", "-c",
                        "seq 100000 120000; sleep 1000")  # fmt: skip
    try:
        await select(app, pilot, id_)
        view = app.main.query_one("#logs", LogsPane).view
        await until(pilot, lambda: view.total >= 1000 and "120000" in screen_text(app))
        await pilot.press("l", "slash", *"[01]0007$", "enter")
        await until(pilot, lambda: "match 2/2: [01]0007$  the log begins here" in screen_text(app))
        query = LogQuery()
        ref = app.main.selected.ref
        printed = b"".join([item.data async for batch in app.service.logs(ref, query) for item in batch])
        assert b"".join(view.lines.raw()()) == printed
        await pilot.press("g")
        await until(pilot, lambda: "100000" in screen_text(app))
    finally:
        engine.docker("rm", "-f", id_)


async def test_the_log_view_has_the_end_of_a_log_of_2_mb_and_its_beginning(engine, shown, unique):
    app, pilot = shown
    name = unique()
    line = "printf 'line %06d of a long log, and some more words of it\\n' $i"
    words = f"i=1; while [ $i -le 40000 ]; do {line}; i=$((i+1)); done; sleep 1000"
    id_ = engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sh", "-c", words)
    try:
        await select(app, pilot, id_)
        view = app.main.query_one("#logs", LogsPane).view
        await pilot.press("l")
        await until(pilot, lambda: "line 040000 of" in screen_text(app) and view.total >= 10_000)
        await pilot.press("slash", *"000777", "enter")
        await until(pilot, lambda: "match 1/1: 000777" in screen_text(app))
        await pilot.press("escape", "g")
        await until(pilot, lambda: "line 000001 of" in screen_text(app) and view.total == 40_000)
    finally:
        engine.docker("rm", "-f", id_)


async def test_an_edit_is_made_live_or_by_a_new_container_whose_old_files_are_kept_first(shown, engine, unique):
    app, pilot = shown
    spec = SandboxSpec(unique(), IMAGE, ("sleep", "1000"), memory_mib=64)
    made = (await app.service.perform(Create(spec, "docker", "default")).result()).ref
    engine.docker("exec", "-u", "0", made.id, "touch", "/note")
    await select(app, pilot, made.id)
    await edit(app, pilot, "memory_mib", "96M", "● live")
    await pilot.press("y")
    await until(pilot, lambda: app.screen is app.main and not app.fleet.busy)
    assert engine.inspect(made.id)["HostConfig"]["Memory"] == 96 << 20
    await edit(app, pilot, "labels", "tier=2", "↻ recreate")
    question = " ".join(str(one.content) for one in app.screen.query(Static))
    assert "/note" in question
    assert "commit first (k)" in question
    await pilot.press("k")
    await until(pilot, lambda: app.screen is app.main and not app.service._work._tasks and not app.fleet.busy)
    [new] = [one for one in (await app.service.list())[0] if one.name == spec.name]
    try:
        assert new.ref != made
        assert (new.spec.memory_mib, new.spec.labels, str(new.status)) == (96, {"tier": "2"}, "running")
        await ends(app, "create", "commit", "update")
        [kept] = [name for image in await app.service.inside.images("docker", "default") for name in image.names
                  if name.startswith(f"{spec.name}-kept")]  # fmt: skip
        assert engine.docker("run", "--rm", "--network", "none", kept, "ls", "/note") == "/note"
        engine.docker("rmi", "-f", kept)
    finally:
        await app.service.perform(Remove(new.ref, force=True)).result()


async def edit(app, pilot, field, text, how):
    """Change a field of the selected sandbox in the form, see in the plan how it is made, and come to the question."""
    await pilot.press("e")
    await until(pilot, lambda: isinstance(app.screen, FormScreen) and app.screen.is_mounted)
    app.screen.query_one(f"#field-{field}", Input).value = text
    await until(pilot, lambda: any(how in row and field in row for row in screen_text(app).splitlines()))
    await pilot.press("ctrl+s")
    await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
