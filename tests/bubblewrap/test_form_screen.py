"""From an empty machine to a running sandbox with one allowed host and one new secret, by counted keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from tests.support.file_keyring import file_keyring
from tests.tui.app.scene import screen_text, until
from textual.pilot import Pilot
from textual.widgets import Input, Static

from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.model.action import Create, Exec, Remove
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import find_paths, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.secret_dialog import SecretScreen

NAME, IMAGE, HOST, SECRET = "agent", "host", "api.example.com", "API_TOKEN"
VALUE = "canary-5d1f00aa93"
MOST_KEYS, MOST_OTHERS = 60, 15
"""The goals of docs/tui.md: all keys, and those that are not typed data."""


@pytest.mark.parametrize("kind", ["variable", "keyring"])
async def test_the_keys_from_an_empty_machine_to_a_sandbox_with_a_host_and_a_secret(
    backend: BubblewrapBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The value is in a variable of the console, or typed into the masked line and kept by the package ``keyring``."""
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    ring = file_keyring(tmp_path, monkeypatch)
    if kind == "variable":
        monkeypatch.setenv(SECRET, VALUE)
    (tmp_path / "home").mkdir(mode=0o700)
    typed: list[str] = []
    async with open_console(backends=[backend]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(120, 40)) as pilot:

            async def press(*keys: str) -> None:
                typed.extend(keys)
                await pilot.press(*keys)

            await until(pilot, lambda: app.fleet.health and all(one.ok for one in app.fleet.health.values()))
            assert not app.fleet.sandboxes
            await press("n")
            await until(pilot, lambda: isinstance(app.screen, FormScreen))
            await press(*NAME, "down", "down", *IMAGE)
            await press("f6", *HOST)
            await press("f7")
            await until(pilot, lambda: isinstance(app.screen, SecretScreen))
            await press(*SECRET)
            if kind == "keyring":
                await press("down", "right", "right", "down", "down", *VALUE)
            await press("enter")
            await until(pilot, lambda: isinstance(app.screen, FormScreen))
            await press("ctrl+s")
            await until(pilot, lambda: app.screen is app.main and app.fleet.sandboxes)
            await until(pilot, lambda: all(one.status is Status.RUNNING for one in app.fleet.sandboxes.values()))
            assert NAME in screen_text(app)
            [made] = (await console.list())[0]
            assert made.spec is not None
            assert (made.spec.image, made.spec.egress, made.spec.secrets) == (IMAGE, (HOST,), (SECRET,))
        text = find_paths().config_file.read_text()
        assert f"[secrets.{SECRET}]" in text
        assert VALUE not in text
        assert (VALUE in ring.read_text()) if kind == "keyring" else not ring.exists()
        seen = await console.perform(Exec(made.ref, ("sh", "-c", f'test "${SECRET}" = {VALUE}'))).result()
        assert seen.exit_code == 0
        data = sum(map(len, (NAME, IMAGE, HOST, SECRET))) + (len(VALUE) if kind == "keyring" else 0)
        assert len(typed) - data <= MOST_OTHERS
        assert kind == "keyring" or len(typed) <= MOST_KEYS
        await console.perform(Remove(made.ref, force=True)).result()


async def test_an_edit_is_made_live_or_by_a_new_sandbox_as_the_plan_said(
    backend: BubblewrapBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    async with open_console(backends=[backend]) as console:
        spec = SandboxSpec(NAME, IMAGE, ("sh", "-c", "echo kept > /tmp/note; sleep 1000"), egress=(HOST,))
        made = (await console.perform(Create(spec, *backend_of(backend))).result()).ref
        app = ConsoleApp(console)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.fleet.sandboxes)
            await edited(app, pilot, "egress", "more.example.com", "● live")
            [live] = (await console.list())[0]
            assert (live.ref, live.spec and live.spec.egress) == (made, (HOST, "more.example.com"))
            question = await edited(app, pilot, "env", "A=1", "↻ recreate")
            assert "Recreated:" in question
            assert "Lost  " in question
            [new] = (await console.list())[0]
            assert new.ref != made
            assert new.status is Status.RUNNING
            assert new.spec == structs.replace(spec, egress=(HOST, "more.example.com"), env={"A": "1"})
        rows = await console.history(AuditQuery())
        assert [row.attempt.body["diff"].keys() for row in rows if row.attempt.action == "update"] == [
            {"env"},
            {"egress"},
        ]
        await console.perform(Remove(new.ref, force=True)).result()


def backend_of(backend: BubblewrapBackend) -> tuple[str, str]:
    return backend.name, backend.host


async def edited(app: ConsoleApp, pilot: Pilot[None], field: str, text: str, how: str) -> str:
    """Change a field of the selected sandbox in the form, with its plan read first. Returns the question's text."""
    await pilot.press("e")
    await until(pilot, lambda: isinstance(app.screen, FormScreen) and app.screen.is_mounted)
    app.screen.query_one(f"#field-{field}", Input).value = text
    await until(pilot, lambda: any(how in line and field in line for line in screen_text(app).splitlines()))
    await pilot.press("ctrl+s")
    await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
    question = " ".join(str(one.content) for one in app.screen.query(Static))
    await pilot.press("y")
    await until(pilot, lambda: app.screen is app.main and not app.fleet.busy)
    return question
