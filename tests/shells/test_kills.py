"""A kept shell over the kill -9 of twenty consoles: same screen, and nothing lost that the guest wrote."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import termios
import time
from pathlib import Path

import pytest
from pyghostty import Terminal as Emulator
from pyghostty import ffi, lib
from pyghostty._ffi import check
from tests.browser.serving import Served, alive, client, read_until, serving
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, Terminal
from tests.shells.test_kept import folder, notes, shells, until

from sandbox_console.model.action import OpenShell
from sandbox_console.service import open_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TIMES = int(os.environ.get("KILLS", "20"))
TICKS = b"n=0; while [ $n -lt 3000 ]; do n=$((n+1)); echo tick $n.; sleep 0.01; done; printf o%sver 1; exec cat\r"


def emulator() -> Emulator:
    found = Emulator(80, 24, 1 << 40)
    size = ffi.new("size_t*", 64 << 20)
    check(lib.ghostty_terminal_set(found._t[0], lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES, size), "limit")
    return found


async def shown(cli: Cli, name: str, last: bytes) -> Emulator:
    """The terminal of somebody who attaches now and watches until the guest has written something."""
    os.environ["SANDBOX_CONSOLE_HOME"] = str(cli.home)
    found, seen = emulator(), b""
    async with open_console() as console, asyncio.timeout(120):
        shell = await console.kept_shells.find(name)
        session = await console.shell(OpenShell(shell.ref, attach=shell.id, read_only=True))
        while last not in seen:
            data = await session.read()
            assert data
            found.feed(data)
            seen = (seen + data)[-100_000:]
        await session.close()
    return found


def ticks(found: Emulator) -> list[int]:
    return [int(number) for number in re.findall(r"tick (\d+)\.", found.contents())]


async def served_app(server: Served) -> None:
    """Open the page as a browser does, and come back to the shell."""
    async with client(server) as one:
        assert await one.log_in(server.link.rpartition("#")[2].removeprefix("token=")) == 200
        async with one.socket(await one.ticket()) as socket:
            await read_until(socket, b"running", 60)
            await socket.send_str('["stdin", "s"]')
            await read_until(socket, b"tick", 60)


def killed_command(cli: Cli, name: str) -> None:
    with Terminal(cli, "shells", "attach", name) as terminal:
        terminal.until(b"tick")
        time.sleep(random.random() / 3)
        terminal.process.kill()
        terminal.process.wait()


def killed_app(cli: Cli) -> None:
    with Terminal(cli) as terminal:
        terminal.until(b"running")
        terminal.type(b"s")
        terminal.until(b"tick")
        terminal.process.kill()
        terminal.process.wait()


def children(pid: int) -> list[int]:
    found = [int(word) for told in Path(f"/proc/{pid}/task").glob("*/children") for word in told.read_text().split()]
    return [*found, *(inner for one in found for inner in children(one))]


@pytest.mark.parametrize("way", ["command", "app", "browser"])
def test_twenty_killed_consoles_lose_nothing(cli: Cli, box: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home))
    with Terminal(cli, "shell", box, "--as", "held") as terminal:
        terminal.type(TICKS)
        terminal.until(b"tick 3.")
        terminal.process.kill()
        terminal.process.wait()
    for _ in range(TIMES):
        if way == "command":
            killed_command(cli, "held")
        elif way == "app":
            killed_app(cli)
        else:
            env = {"SANDBOX_CONSOLE_HOME": str(cli.home)}
            with serving([*COMMAND, "serve", "--port", "0"], env) as server:
                asyncio.run(served_app(server))
                apps = children(server.process.pid)
                for pid in (server.process.pid, *apps):
                    if alive(pid):
                        os.kill(pid, signal.SIGKILL)
                server.process.wait()
    assert [one["name"] for one in shells(cli)] == ["held"]
    whole = asyncio.run(shown(cli, "held", b"o1ver"))
    found = ticks(whole)
    assert found == list(range(found[0], 3001)), "something is missing or there twice"
    assert found[0] == 1
    again = asyncio.run(shown(cli, "held", b"o1ver"))
    assert (again.text(), again.contents(), again.cursor) == (whole.text(), whole.contents(), whole.cursor)
    cli.ok("shells", "end", "held")
    until(lambda: not list(folder(cli).iterdir()))


def test_a_console_that_is_killed_while_it_opens_one_leaves_it_whole_or_not_at_all(cli: Cli, box: str) -> None:
    for number in range(TIMES):
        with Terminal(cli, "shell", box, "--as", f"n{number}") as terminal:
            terminal.type(b"sleep 4241\r")
            time.sleep(0.2 + 1.3 * number / TIMES)
            terminal.process.kill()
            terminal.process.wait()
    cli.ok("exec", box, "--", "true")
    until(lambda: all(one["answers"] for one in shells(cli)))
    for one in shells(cli):
        with Terminal(cli, "shells", "attach", one["name"]) as terminal:
            # Before the console takes the terminal, Ctrl+C would interrupt the console itself.
            until(lambda: not terminal.attributes()[3] & termios.ICANON)
            terminal.type(b"\x03\recho al$((1))ve\r")
            terminal.until(b"al1ve")
            terminal.type(b"exit\r")
            terminal.read_to_end()
    until(lambda: not list(folder(cli).glob("*")))
    assert b"sleep 4241" not in cli.ok("top", box)
    opened = [row for row in cli.json("audit", "ls", "--limit", "200") if row["action"] == "shell"]
    assert len([one for one in notes(cli, "shell") if "exit" in one]) <= len(opened)
