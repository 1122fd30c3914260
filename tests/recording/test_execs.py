"""Commands of real sandboxes on record: what they wrote, masked and capped, with their end in the audit log."""

from __future__ import annotations

import signal

import pytest
from tests.cli.conftest import Cli, box, cli
from tests.cli.terminal import Terminal
from tests.support.require import requires

from sandbox_console.recording.cast import read_events, read_header
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

__all__ = ["box", "cli"]

pytestmark = requires("bubblewrap")
CANARY = "canary-value-of-a-secret"


@pytest.fixture
def recorded(cli: Cli) -> Cli:
    configure(cli, '[recording]\nmode = "best-effort"\nrecord = ["shell", "exec"]\nexec_max_kib = 4\n')
    return cli


def configure(cli: Cli, text: str) -> None:
    path = cli.home / "config.toml"
    path.write_text((path.read_text() if path.exists() else "") + text)


def written(cli: Cli, id_: object) -> str:
    path = cli.home / "state" / "recordings" / f"{id_}.cast"
    return "".join(text for _, kind, text in read_events(path) if kind == "o")


def test_a_command_its_output_and_its_end_are_on_record(recorded: Cli, box: str) -> None:
    done = recorded("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    [found] = recorded.json("recordings", "ls")
    assert (found["kind"], found["exit"], found["check"], found["name"]) == ("exec", 7, "holds", "box")
    assert found["command"] == "sh -c 'echo out; echo err >&2; exit 7'"
    assert sorted(written(recorded, found["id"]).splitlines()) == ["err", "out"]
    [shown] = recorded.json("audit", "show", str(found["audit_id"]))
    assert shown["end"]["body"]["recording"]["id"] == found["id"]
    assert len(shown["end"]["body"]["recording"]["sha256"]) == 64
    [line] = recorded.json("recordings", "search", "OUT")
    assert (line["id"], line["line"]) == (found["id"], "out")
    with Terminal(recorded, "recordings", "play", str(found["id"]), "--speed", "1000") as terminal:
        assert b"out\r" in terminal.read_to_end()
    path = recorded.home / "state" / "recordings" / f"{found['id']}.cast"
    path.write_text(path.read_text().replace("out", "tuo"))
    assert recorded.json("recordings", "ls")[0]["check"] == "changed"


def test_secrets_are_masked_and_output_is_capped(recorded: Cli) -> None:
    source = recorded.home / "value"
    source.write_text(CANARY)
    source.chmod(0o600)
    configure(recorded, f'[secrets.TOKEN]\nfrom = "file:{source}"\n')
    recorded.ok("create", "masked", "--image", "host", "--secret", "TOKEN", "--", "sleep", "1000")
    try:
        script = f'printf "%s" "$TOKEN"; echo {CANARY} >&2; head -c 9000 /dev/zero | tr "\\0" x'
        recorded("exec", "masked", "--", "sh", "-c", script)
        [found] = recorded.json("recordings", "ls")
        path = recorded.home / "state" / "recordings" / f"{found['id']}.cast"
        assert CANARY not in path.read_text()
        assert "[secret]" in written(recorded, found["id"])
        assert path.stat().st_size < 8000
        *_, (_, kind, text) = read_events(path)
        assert (kind, "recording.exec_max_kib" in text) == ("m", True)
        assert CANARY not in str(read_header(path))
    finally:
        recorded.ok("rm", "--force", "masked")


def test_one_command_is_recorded_as_asked(cli: Cli, box: str) -> None:
    """Whatever the configuration says, and not at all if that is not possible."""
    cli.ok("exec", box, "--", "true")
    done = cli("exec", "--record", box, "--", "sh", "-c", "echo said; exit 3")
    assert (done.returncode, done.stdout) == (3, b"said\n")
    [found] = cli.json("recordings", "ls")
    assert (found["kind"], found["exit"], found["check"]) == ("exec", 3, "holds")
    assert found["command"] == "sh -c 'echo said; exit 3'"
    [shown] = cli.json("audit", "show", str(found["audit_id"]))
    assert shown["attempt"]["body"]["record"] is True
    assert len(shown["end"]["body"]["recording"]["sha256"]) == 64
    folder = cli.home / "state" / "recordings"
    folder.rename(folder.with_name("moved"))
    folder.write_text("in the way")
    done = cli("exec", "--record", box, "--", "touch", "/tmp/made")
    assert done.returncode == 125
    assert b"the command cannot be recorded" in done.stderr
    assert cli("exec", box, "--", "test", "-e", "/tmp/made").returncode == 1


BROKEN_UP = [r"canary-value\033P\nq\033\\-of-a-secret\n", r"canary-value\033]0;\nX\a-of-a-secret\n"]


def test_no_player_shows_a_secret_that_a_control_string_with_a_line_feed_breaks_up(recorded: Cli) -> None:
    """The app plays a recording on a terminal, which ignores line feeds there, and not as lines."""
    source = recorded.home / "value"
    source.write_text(CANARY)
    source.chmod(0o600)
    configure(recorded, f'[secrets.TOKEN]\nfrom = "file:{source}"\n')
    recorded.ok("create", "masked", "--image", "host", "--secret", "TOKEN", "--", "sleep", "1000")
    try:
        recorded("exec", "masked", "--", "printf", "before\\n" + "".join(BROKEN_UP) + "after\\n")
        [found] = recorded.json("recordings", "ls")
        header = read_header(recorded.home / "state" / "recordings" / f"{found['id']}.cast")
        player = GhosttyEmulator(header["width"], header["height"])
        player.feed(written(recorded, found["id"]).encode())
        player.refresh()
        rows = [row.strip() for row in player.text().splitlines()]
        assert {"before", "canary-value", "after"} <= set(rows)
        assert CANARY not in player.text()
    finally:
        recorded.ok("rm", "--force", "masked")


def test_one_that_is_cancelled_has_its_recording_in_a_note(recorded: Cli, box: str) -> None:
    done = recorded("exec", box, "--timeout", "1", "--", "sh", "-c", "echo begun; sleep 100")
    assert done.returncode == 124
    assert recorded.json("recordings", "ls")[0]["check"] == "holds"
    process = recorded.start("exec", box, "--", "sh", "-c", "echo begun; sleep 100")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    [found, *_] = recorded.json("recordings", "ls")
    [shown] = recorded.json("audit", "show", str(found["audit_id"]))
    assert found["check"] == "holds"
    assert [note["body"]["recording"]["id"] for note in shown["notes"]] == [found["id"]]
    assert written(recorded, found["id"]) == "begun\r\n"


def test_the_policy_can_require_it(cli: Cli, box: str) -> None:
    configure(cli, '[policy]\nrecord = ["exec"]\n')
    cli.ok("exec", box, "--", "true")
    [found] = cli.json("recordings", "ls")
    assert found["command"] == "true"
    folder = cli.home / "state" / "recordings"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    done = cli("exec", box, "--", "touch", "/workspace/made")
    assert done.returncode == 125
    assert b"the command cannot be recorded" in done.stderr
    assert cli("exec", box, "--", "test", "-e", "/workspace/made").returncode == 125
    [row, *_] = cli.json("audit", "ls")
    assert row["outcome"] == "failed"
