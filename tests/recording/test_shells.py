"""Shells of real sandboxes on record: by the service, and by the command line on a real terminal."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Cli, box, cli
from tests.cli.terminal import Terminal
from tests.support.require import requires

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import OpenShell
from sandbox_console.model.recording import Check
from sandbox_console.recording.cast import read_events
from sandbox_console.service import Config, open_console
from sandbox_console.service.config import RecordingOptions

__all__ = ["box", "cli"]

pytestmark = requires("bubblewrap")
RECORDED = Config(recording=RecordingOptions(mode="required"))


def the_recording(cli: Cli) -> dict[str, object]:
    [found] = cli.json("recordings", "ls")
    return found


def shell(cli: Cli, box: str, *words: str, script: bytes = b"echo m$((6*7))\r") -> None:
    with Terminal(cli, "shell", box, *words) as terminal:
        terminal.type(script)
        terminal.until(b"m42")
        terminal.type(b"exit\r")
        terminal.read_to_end()


def test_a_shell_is_recorded_found_and_handed_on(cli: Cli, box: str) -> None:
    shell(cli, box, "--record")
    found = the_recording(cli)
    assert (found["name"], found["check"], found["actor"]) == ("box", "holds", cli.json("audit", "ls")[0]["actor"])
    [shown] = cli.json("audit", "show", str(found["audit_id"]))
    assert shown["attempt"]["body"]["record"] is True
    assert shown["notes"][0]["body"]["recording"]["id"] == found["id"]
    [line, *_] = cli.json("recordings", "search", "M42")
    assert (line["id"], line["line"]) == (found["id"], "m42")
    assert cli("recordings", "search", "nobody wrote this").returncode == 1
    assert b"m42\n" in cli.ok("recordings", "export", str(found["id"]), "--format", "text")
    target = cli.home / "out.cast"
    cli.ok("recordings", "export", str(found["id"]), "-o", str(target))
    assert json.loads(target.read_text().splitlines()[0])["title"] == "box"
    assert any("m42" in text for _, _, text in read_events(target))


def test_it_plays_as_it_was_and_acts_on_no_terminal(cli: Cli, box: str) -> None:
    shell(cli, box, "--record", script=b"printf '\\033]52;c;AAAA\\007\\033[31mred\\033[0m m%s\n' $((6*7))\r")
    found = the_recording(cli)
    with Terminal(cli, "recordings", "play", str(found["id"]), "--speed", "1000") as terminal:
        shown = terminal.read_to_end()
    assert b"\x1b[31mred" in shown
    assert b"\x1b]52" not in shown
    assert terminal.process.returncode == 0


def test_a_changed_recording_is_told(cli: Cli, box: str) -> None:
    shell(cli, box, "--record")
    path = cli.home / "state" / "recordings" / f"{the_recording(cli)['id']}.cast"
    path.write_text(path.read_text().replace("m42", "m43"))
    assert the_recording(cli)["check"] == "changed"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("play", "no-such"), 2, b"needs a terminal"),
        (("export", "no-such"), 3, b"no recording is called"),
        (("export", "../../audit/audit.db"), 3, b"no recording is called"),
        (("export", "x", "--format", "gif"), 2, b"there is: cast, text"),
        (("search", ""), 2, b"nothing to look for"),
    ],
)
def test_bad_words(cli: Cli, words: tuple[str, ...], code: int, told: bytes) -> None:
    done = cli("recordings", *words)
    assert done.returncode == code
    assert told in done.stderr


def test_a_shell_that_must_be_recorded_and_cannot_is_not_opened(cli: Cli, box: str) -> None:
    (cli.home / "state" / "recordings").write_text("in the way")
    done = cli.start("shell", box, "--record")
    done.communicate(timeout=60)
    with Terminal(cli, "shell", box, "--record") as terminal:
        assert b"cannot be recorded" in terminal.read_to_end()
    assert terminal.process.returncode == 125
    assert cli.json("audit", "ls", "--action", "shell", "--limit", "1")[0]["outcome"] == "failed"


async def test_one_whose_recording_fails_in_the_middle_ends(
    cli: Cli, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home))
    async with open_console(RECORDED, only_backend="bubblewrap") as console:
        session = await console.shell(OpenShell((await console.find(box)).ref))
        assert session.recorded
        [recording] = await console.recordings.list()
        assert recording.check is Check.UNENDED
        path = console.recordings.path(recording.id)
        path.unlink()
        path.mkdir()

        async def go_on() -> None:
            while await session.read():
                await session.write(b"echo more; sleep 0.3\n")

        with pytest.raises(ConsoleError, match="cannot be recorded"):
            await go_on()
        await session.close()
        [note] = (await console.audit_log.entry(session.audit_id)).notes
    assert note.body["recording"]["problem"]


async def test_the_oldest_go_when_there_is_no_room(cli: Cli, box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home))
    folder = cli.home / "state" / "recordings"
    folder.mkdir(mode=0o700)
    for day in (1, 2):
        (folder / f"2020010{day}T000000Z-1.cast").write_bytes(b"x" * 700_000)
    options = RecordingOptions(mode="best-effort", max_mib=1, keep_mib=1)
    async with open_console(Config(recording=options), only_backend="bubblewrap") as console:
        await (await console.shell(OpenShell((await console.find(box)).ref))).close()
        found = await console.recordings.list()
    assert [one.id for one in found][1:] == ["20200102T000000Z-1"]
    assert found[1].problem
