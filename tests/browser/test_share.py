"""``share``: asked first, then the console itself through textual-web and a relay, and nothing left of either."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.browser.relay import relay
from tests.browser.serving import alive, eventually
from tests.support.require import missing, requires, share_cache

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.web import textual_web
from sandbox_console.web.share import ShareOptions, write_config

CONSOLE = [sys.executable, "-m", "sandbox_console"]


def console(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    return subprocess.run([*CONSOLE, *words], capture_output=True, text=True, env=environment, timeout=60, check=False)


@contextmanager
def sharing(home: Path, *words: str, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    secrets = {"AWS_SECRET_ACCESS_KEY": "not-for-viewers", "GANGLION_API_KEY": "the-operators-key"}
    environment = os.environ | secrets | {"SANDBOX_CONSOLE_HOME": str(home)}
    argv = [*CONSOLE, "share", "--yes", "--environment", "local", *words]
    with (home / "said").open("w") as said:
        process = subprocess.Popen(argv, env=environment, stderr=said, stdout=said, cwd=folder)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def cache() -> Path:
    """The environment of textual-web, installed once; what keeps it from that is a skip, or a failure by REQUIRE."""
    if reason := missing("textual-web"):
        pytest.skip(f"textual-web: {reason}")
    return share_cache()


@pytest.fixture
def home(tmp_path: Path, cache: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "cache").symlink_to(cache)
    (folder / "config.toml").write_text(
        "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
    )
    made = console(folder, "create", "seen-from-afar", "--image", "host", "--", "sleep", "1000")
    assert made.returncode == 0, made.stderr
    yield folder
    console(folder, "rm", "--force", "seen-from-afar")


def group(process: subprocess.Popen[str]) -> set[int]:
    """textual-web and every process of its session: the shell, the console."""
    leaders = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return {pid for pid in pids if _session(pid) in leaders}


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


@requires("bubblewrap")
async def test_the_console_paints_obeys_and_ends_behind_a_relay(home: Path, cache: Path) -> None:
    (cache / "share-of-a-killed-run").mkdir(exist_ok=True)
    async with relay() as it:
        with sharing(home) as process:
            await it.open(100, 30)
            assert re.fullmatch("[0-9a-f]{32}", it.apps[0]["slug"])
            assert it.headers["GANGLIONAPIKEY"] == "the-operators-key"
            await it.sees(b"READ-ONLY")
            await it.sees(b"seen-from-afar")
            pids = group(process)
            _no_secrets_in(pids)
            await it.resize(40, 10)
            await it.sees(b"too small")
            await it.resize(120, 40)
            await it.sees(b"seen-from-afar")
            await it.type(b"x")  # stop, and agree if asked: read-only, it must not happen
            await it.type(b"\t\r")
            await it.type(b"?")
            await it.sees(b"elp")
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 20) == 0
        assert len(pids) >= 2
        assert not [pid for pid in pids if alive(pid)]
    assert '"status": "running"' in console(home, "ls", "--json").stdout
    assert {row["outcome"] for row in _rows(home, "stop")} <= {"denied"}
    assert not list(cache.glob("share-*"))
    said = (home / "said").read_text()
    assert "does not ask viewers who they are" in said
    assert "Traceback" not in said


@requires("bubblewrap")
async def test_read_write_acts_and_a_viewer_who_leaves_ends_his_app(home: Path) -> None:
    async with relay() as it:
        with sharing(home, "--read-write") as process:
            await it.open(100, 30)
            await it.sees(b"seen-from-afar")
            before = group(process)
            await it.type(b"x")
            await it.sees(b"Cancel")
            await it.type(b"\t")
            await it.type(b"\r")
            await it.sees(b"exited")
            # Seen is not yet recorded: leaving now would cancel it.
            assert await asyncio.to_thread(eventually, lambda: _ends(home, "stop") == [("shared:local", "ok")])
            await it.leave()
            await it.until(lambda: it.closed)
            assert await asyncio.to_thread(eventually, lambda: len([pid for pid in before if alive(pid)]) == 1)
            process.kill()  # kill -9: textual-web is told by the kernel
            assert await asyncio.to_thread(eventually, lambda: not [pid for pid in before if alive(pid)])
    assert _ends(home, "stop") == [("shared:local", "ok")]


@requires("bubblewrap")
@pytest.mark.parametrize("words", [(), ("--read-write",)], ids=["read-only", "read-write"])
async def test_a_viewer_saves_no_file_on_the_server(home: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    (folder := tmp_path / "cwd").mkdir()
    async with relay() as it:
        with sharing(home, *words, folder=folder) as process:
            await it.open(100, 30)
            await it.sees(b"seen-from-afar")
            before = sorted(home.rglob("*.log"))
            await it.type(b"l")
            await it.sees(b"FOLLOWING")
            await it.type(b"\x13")  # Ctrl+S
            await it.sees(b"The relay passes no files on.")
            await it.type(b"\r")
            await it.type(b"?")
            await it.sees(b"elp")
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 20) == 0
    assert list(folder.iterdir()) == []
    assert sorted(home.rglob("*.log")) == before


def _ends(home: Path, action: str) -> list[tuple[str, str]]:
    return [(row["actor"], row["outcome"]) for row in _rows(home, action)]


def _rows(home: Path, action: str) -> list[dict[str, str]]:
    rows = map(json.loads, console(home, "audit", "ls", "--json").stdout.splitlines())
    return [row for row in rows if row["action"] == action]


def _no_secrets_in(pids: set[int]) -> None:
    consoles = 0
    for pid in pids:
        try:
            words, environment = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
        except (ProcessLookupError, PermissionError):  # one has ended; one shows its environment to nobody
            continue
        assert b"not-for-viewers" not in environment
        if b"sandbox_console\0" in words:
            consoles += 1
            assert b"the-operators-key" not in environment
            assert b"TEXTUAL_DRIVER=sandbox_console.web.textual_driver:SharedDriver" in environment
    assert consoles == 1


@pytest.mark.parametrize("words", [[], ["--read-write"], ["--environment", "local"]])
def test_nothing_is_done_without_consent(tmp_path: Path, words: list[str]) -> None:
    done = console(tmp_path, "share", *words)
    assert done.returncode == 4
    assert "public relay, which does not ask viewers who they are" in done.stderr
    assert ("all that the policy allows" in done.stderr) == ("--read-write" in words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--environment", "elsewhere"], ["--read-only", "--read-write"]])
def test_words_that_do_not_hold(tmp_path: Path, words: list[str]) -> None:
    assert console(tmp_path, "share", "--yes", *words).returncode == 2


def test_the_launcher_takes_any_path(tmp_path: Path) -> None:
    strange = tmp_path / "a $HOME 'quoted\" folder"
    strange.mkdir()
    config = write_config(strange, ShareOptions(config=strange / "c.toml", backend="x; touch owned"))
    assert str(strange) not in config.read_text()
    launcher = (strange / "console").read_text().replace("\nexec ", "\nprintf '%s\\n' ")
    (strange / "console").write_text(launcher)
    printed = subprocess.run(["./console"], cwd=strange, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[printed.index("--config") + 1] == str(strange / "c.toml")
    assert printed[-3:] == ["--backend", "x; touch owned", "--read-only"]


async def test_no_fitting_python_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"needs Python 3\.11 or 3\.12"):
        await textual_web.install(tmp_path, lambda _: None, candidates=["/nowhere/python", "/bin/false"])


async def test_pips_failure_is_told_and_a_half_made_environment_is_made_anew(tmp_path: Path, monkeypatch) -> None:
    lock = tmp_path / "lock"
    lock.write_text(f"not-to-be-had==1 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(textual_web, "LOCK", lock)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    said: list[str] = []
    with pytest.raises(ConsoleError, match=r"pip cannot install .*not-to-be-had"):
        await textual_web.install(tmp_path, said.append)
    (half,) = tmp_path.glob("textual-web-*/venv")
    (half / "left-behind").touch()
    lock.write_text("")  # what can be installed without an index: nothing
    half = half.parent.rename(half.parent.with_name(textual_web.folder_of(tmp_path).name)) / "venv"
    python = await textual_web.install(tmp_path, said.append)
    assert not (half / "left-behind").exists()
    assert await textual_web.install(tmp_path, said.append) == python
    assert len(said) == 2
    assert (
        subprocess.run([python, "-c", "import sys; sys.exit(sys.prefix == sys.base_prefix)"], check=False).returncode
        == 0
    )
