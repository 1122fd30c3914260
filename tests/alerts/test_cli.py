"""`alerts` and `watch` by the command line, on real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.alerts.conftest import Make, Receiver, until, write_config

from sandbox_console.cli import parser
from sandbox_console.service import Console

CONFIG = """
[alerts.rules.fatal]
on = "log"
pattern = "FATAL"
[alerts.channels.ops]
kind = "webhook"
url = "{url}"
key = "HOOK"
[secrets.HOOK]
from = "env:HOOK_KEY"
"""


class Cli:
    def __init__(self, home: Path, backend: str) -> None:
        self._home, self._backend = home, backend

    def start(self, *words: str, **env: str) -> asyncio.subprocess.Process:
        where = () if words[0] == "audit" or words[:2] == ("--json", "audit") else ("--backend", self._backend)
        return asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandbox_console", *where, *words, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=os.environ | {"SANDBOX_CONSOLE_HOME": str(self._home)} | env,
        )  # fmt: skip

    async def __call__(self, *words: str, **env: str) -> tuple[int, str, str]:
        process = await self.start(*words, **env)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def json(self, *words: str) -> list[dict]:
        code, out, err = await self("--json", *words)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
async def cli(home: Path, backend: str, receiver: Receiver) -> Cli:
    write_config(home, CONFIG.format(url=receiver.url))
    return Cli(home, backend)


async def test_an_alert_from_the_line_to_the_receiver_and_a_silence(
    cli: Cli, console: Console, make: Make, receiver: Receiver
) -> None:
    watching = await cli.start("watch", HOOK_KEY="0123456789abcdef")
    try:
        while b"rules: 1, channels: 1" not in await watching.stderr.readline():
            pass
        await make("sh", "-c", "echo FATAL here; sleep 60", name="web")
        line = (await watching.stdout.readline()).decode()
        assert re.fullmatch(r"\S+Z  FIRING    warning   fatal  web  FATAL here\n", line)
        await until(lambda: receiver.got)
        [fires] = await cli.json("alerts", "ls")
        assert (fires["rule"], fires["name"], fires["state"], fires["text"]) == ("fatal", "web", "firing", "FATAL here")
        assert receiver.alerts() == [fires["id"]]
        code, out, err = await cli("alerts", "ls")
        assert (code, "FATAL here" in out, "nothing runs the rules" in err) == (0, True, False)
        code, _, err = await cli("alerts", "silence", "fat*", "--sandbox", "other", "--for", "2h", "--reason", "known")
        assert (code, "silence 1: no messages of fat* about other" in err) == (0, True)
        await make("sh", "-c", "echo FATAL too; sleep 60", name="other")
        assert "fatal  other  FATAL too" in (await watching.stdout.readline()).decode()
        await asyncio.sleep(1.5)
        assert len(receiver.got) == 1
        assert {one["name"]: one["silenced"] for one in await cli.json("alerts", "ls")} == {"web": False, "other": True}
        assert (await cli("alerts", "silence", "--undo", "1"))[0] == 0
        await until(lambda: len(receiver.got) == 2)  # it still fires: now it is told
    finally:
        watching.send_signal(signal.SIGTERM)
        assert await watching.wait() == 128 + signal.SIGTERM
    rows = await cli.json("audit", "ls")
    assert {row["action"] for row in rows} >= {"alert", "alert-delivery", "alert-silence", "alert-unsilence"}
    assert "0123456789abcdef" not in json.dumps(rows)
    assert (await cli("alerts", "silence", "--undo", "9"))[0] == 3


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_a_channel_is_tried(cli: Cli, receiver: Receiver) -> None:
    code, out, _ = await cli("alerts", "test", HOOK_KEY="0123456789abcdef")
    assert (code, out) == (0, "ops: the message has arrived\n")
    assert receiver.got[0]["status"] == "test"
    code, _, err = await cli("alerts", "test", "ops")
    assert (code, "HOOK_KEY" in err) == (1, True)
    receiver.status = 403
    code, _, err = await cli("alerts", "test", "ops", HOOK_KEY="0123456789abcdef")
    assert (code, "ops: it answered 403" in err) == (1, True)
    code, _, err = await cli("alerts", "test", "opps")
    assert (code, "there is no channel 'opps'" in err, "there is ops" in err) == (3, True, True)
    code, _, err = await cli("--read-only", "alerts", "silence", "x")
    assert (code, "read-only" in err) == (4, True)
    assert [row["outcome"] for row in await cli.json("audit", "ls")] == ["denied", "failed", "failed", "ok"]


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_a_bad_rule_and_no_rule(cli: Cli, home: Path) -> None:
    write_config(home, '[alerts.rules.x]\non = "log"\npattern = "(?=a)"\n')
    code, out, err = await cli("watch")
    assert (code, out) == (2, "")
    assert re.search(r"alerts.rules.x: pattern: .* is not a regular expression here", err)
    assert "hint: look-around and backreferences are not supported" in err
    write_config(home, "")
    code, _, err = await cli("watch")
    assert (code, "there are no rules to watch" in err, "docs/alerts.md" in err) == (2, True, True)


def test_the_unit_starts_what_there_is(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "assets" / "sandbox-console-watch.service"
    unit = path.read_text()
    words = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1])
    assert words[:2] == ["/usr/bin/env", "sandbox-console"]
    assert parser.parse(words[2:]).verb == "watch"
    assert f"SuccessExitStatus={128 + signal.SIGTERM}" in unit
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", "--user", path]
        done = subprocess.run(command, env={"XDG_RUNTIME_DIR": str(tmp_path)}, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
