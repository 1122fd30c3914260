"""A password that is typed without echo, and a secret that is printed, are in no recording and in no export of one."""

from __future__ import annotations

import secrets

import pytest
from tests.cli.conftest import Cli
from tests.secrets.test_canary import Place, on_disk, place, read_until, running, screen, until
from tests.support.engine import docker_engine
from textual.events import Paste

from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.recording import Check
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console
from sandbox_console.service.config import RecordingOptions
from sandbox_console.service.sessions.shell import ShellSession
from sandbox_console.tui.app import ConsoleApp

__all__ = ["docker_engine", "place"]

RECORDED = RecordingOptions(mode="required", record=("shell", "exec"))
LEAVE = "ctrl+right_square_bracket"


def asks(place: Place) -> str:
    """A line for a shell that says when it reads without echo, and then how long what it read is."""
    shell = "bash" if place.backend.name == "bubblewrap" else "sh"  # dash has no read -s
    return f'{shell} -c \'stty -echo; echo re""ady; read -rs p; stty echo; echo got ${{#p}}; echo "<$TOKEN>"\''


async def ask(session: ShellSession, place: Place, password: str) -> None:
    await session.write(f"{asks(place)}\n".encode())
    await read_until(session, b"ready\r\n")
    await session.write(f"{password}\n".encode())
    await read_until(session, b"<[secret]>")


async def broadcast(console: Console, place: Place, box: Sandbox, password: str) -> None:
    """Ask in two shells at once."""
    app = ConsoleApp(console)

    async def type_line(text: str) -> None:
        await pilot.press(*text, "enter")

    def texts() -> list[str]:
        return [one.link.emulator.text() for one in app.main.detail.shells.open if one.link]

    async with app.run_test(size=(160, 40)) as pilot:
        await until(pilot, lambda: box.name in screen(app))
        await pilot.press("dollar_sign")
        await until(pilot, lambda: [text.rstrip()[-1:] for text in texts()] in (["$"], ["#"]))
        await pilot.press(LEAVE, "vertical_line")
        await until(pilot, lambda: [text.rstrip()[-1:] for text in texts()] in (["$"] * 2, ["#"] * 2))
        await pilot.press(LEAVE, "asterisk", "b")
        await until(pilot, lambda: "Type into 2 shells at once?" in screen(app))
        await pilot.press("y")
        await until(pilot, lambda: "BROADCAST to 2 shells" in screen(app))
        app.post_message(Paste(asks(place)))
        await pilot.press("enter")
        await until(pilot, lambda: all("\nready" in text for text in texts()))
        await type_line(password)
        await until(pilot, lambda: all("<[secret]>" in text for text in texts()))
        await type_line("exit")
        await until(pilot, lambda: app.main.detail.shells.open.open_count == 0)


@pytest.mark.slow
async def test_neither_is_in_one(place, tmp_path, canary):
    password = secrets.token_hex(11)
    async with running(place, tmp_path, canary, RECORDED) as (console, box):
        plain = await console.shell(OpenShell(box.ref))
        await ask(plain, place, password)
        await plain.close()
        kept = await console.shell(OpenShell(box.ref, keep=True, name="held"))
        await ask(kept, place, password)
        await kept.end()
        await kept.close()
        ran = await console.perform(Exec(box.ref, ("sh", "-c", 'echo "got 22<$TOKEN>"'))).result()
        assert ran.stdout == b"got 22<[secret]>\n"
        await broadcast(console, place, box, password)
        home, recordings = tmp_path / "home", await console.recordings.list()
        assert [one.kind for one in recordings].count("shell") == 4
        assert len(recordings) == 5
        assert {one.check for one in recordings} == {Check.HOLDS}
        exported = [Cli(home).start("audit", "export", "--json").communicate(timeout=60)[0].decode()]
        assert "recording" in exported[0]
        for one in recordings:  # what `recordings export` gives as text; as a cast it is the file itself
            text = "\n".join([line.text async for line in console.recordings.text(one.id)])
            assert "got 22" in text, one
            assert "<[secret]>" in text, one
            exported.append(text)
        for needle in (password, canary):
            assert on_disk(home, needle) == []
            assert not [text for text in exported if needle in text]
