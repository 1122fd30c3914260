"""A value that exists nowhere else is handed to real sandboxes, then looked for everywhere: only they have it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.action import Create, Exec, OpenShell, Remove
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, Console, Leak, open_console
from sandbox_console.service.config import RecordingOptions
from sandbox_console.tui.app import ConsoleApp

__all__ = ["docker_engine"]

ANOTHER_USER = 12345
DEADLINE_S = 60.0
NOT_RECORDED = RecordingOptions()
_ALL = AuditQuery(limit=500)
_KEYS = {" ": "space", '"': "quotation_mark", "<": "less_than_sign", ">": "greater_than_sign", "$": "dollar_sign"}
_LOOK = r"""
import os, sys
needle = sys.stdin.buffer.read()
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "comm", "status", "auxv"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if needle in file.read():
                    print(pid, name)
        except OSError:
            pass
"""


@dataclass
class Place:
    """One backend, and the folders in which its engine keeps things."""

    backend: Backend
    image: str
    folders: list[Path] = field(default_factory=list)


@pytest.fixture(params=["bubblewrap", "docker"])
async def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    if reason := missing(request.param):
        pytest.skip(f"{request.param}: {reason}")
    if request.param == "bubblewrap":
        [backend] = BubblewrapProvider.backends(BackendSettings(tmp_path / "home/state/backends/bubblewrap"))
        return Place(backend, "host")
    engine = request.getfixturevalue("docker_engine")
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    return Place(DockerBackend("default"), IMAGE, [engine.data, engine.folder / "exec"])


@asynccontextmanager
async def running(
    place: Place, tmp_path: Path, canary: str, recording: RecordingOptions = NOT_RECORDED
) -> AsyncIterator[tuple[Console, Sandbox]]:
    """A console, and a sandbox with the value as a variable and as a file."""
    source = tmp_path / "value"
    source.write_text(canary)
    source.chmod(0o600)
    table = {
        "TOKEN": SecretSource(source=f"file:{source}"),
        "pem": SecretSource(source=f'cmd:["cat", "{source}"]', inject="file"),
    }
    name = f"canary-{os.getpid()}"
    spec = SandboxSpec(name, place.image, command=("sleep", "1000"), secrets=("TOKEN", "pem"))
    config = Config(backend=place.backend.name, secrets=table, recording=recording)
    async with open_console(config, backends=[place.backend]) as console:
        made = await console.perform(Create(spec, place.backend.name, place.backend.host)).result()
        assert made.ref is not None
        try:
            yield console, await console.inspect(made.ref)
        finally:
            await console.perform(Remove(made.ref, force=True)).result()


def on_disk(folder: Path, canary: str) -> list[str]:
    """Files that hold it; the pattern goes in by stdin, or grep's own arguments would."""
    words = ["grep", "-rlaF", "--devices=skip", "-f", "-", str(folder)]
    return subprocess.run(words, input=canary.encode(), capture_output=True, check=False).stdout.decode().split()


def in_proc(canary: str, uid: int | None = None) -> list[tuple[str, str]]:
    """(pid, file) of each process in which a user sees it."""
    become = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid is not None else []
    python = "/usr/bin/python3" if uid is not None else sys.executable
    done = subprocess.run([*become, python, "-c", _LOOK], input=canary.encode(), capture_output=True, check=True)
    return [(line.split()[0], line.split()[1]) for line in done.stdout.decode().splitlines()]


def inside(pid: str) -> bool:
    """Whether a process is in a pid namespace that is not ours."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    except FileNotFoundError:
        return True  # it has ended meanwhile


async def read_until(session, mark: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(DEADLINE_S):
        while mark not in seen:
            data = await session.read()
            assert data, seen
            seen += data
    return seen


async def test_it_is_in_the_sandbox_and_nowhere_else(place, tmp_path, canary, request):
    digest = hashlib.sha256(canary.encode()).hexdigest()
    hashes = 'printf %s "$TOKEN" | sha256sum; sha256sum < /run/secrets/pem'
    async with running(place, tmp_path, canary) as (console, box):
        ran = await console.perform(Exec(box.ref, ("sh", "-c", hashes))).result()
        assert ran.stdout.decode().split()[::2] == [digest, digest], "a command gets both"
        shown = await console.perform(Exec(box.ref, ("sh", "-c", 'echo "$TOKEN"; cat /run/secrets/pem'))).result()
        assert shown.stdout == b"[secret]\n[secret]"
        session = await console.shell(OpenShell(box.ref, record=True))
        await session.write(b'echo "<$TOKEN>"\n' + hashes.encode() + b"\necho do''ne\n")
        typed = await read_until(session, b"done")
        assert typed.count(digest.encode()) == 2, "a shell gets both"
        assert b"<[secret]>" in typed
        waiting = console.perform(Exec(box.ref, ("sleep", "500")))
        async with asyncio.timeout(DEADLINE_S):
            while len(in_proc(canary)) < 3:  # its main process, the shell, the waiting command
                await asyncio.sleep(0.1)

        assert all(inside(pid) and name == "environ" for pid, name in in_proc(canary))
        if not missing("user"):
            assert in_proc(canary, ANOTHER_USER) == []
        for folder in (tmp_path / "home", *place.folders):
            assert on_disk(folder, canary) == [], folder
        assert canary not in json.dumps([entry.attempt.as_dict() for entry in await console.history(_ALL)])
        assert canary not in repr(await console.inspect(box.ref))
        assert canary not in json.dumps(await console.inside.raw(box.ref), default=str)
        if place.folders:
            engine = request.getfixturevalue("docker_engine")
            assert canary not in engine.docker("inspect", box.ref.id)
        await session.close()
        waiting.cancel()
        await asyncio.gather(waiting.result(), return_exceptions=True)
        [recording] = (tmp_path / "home").rglob("*.cast")
        assert "<[secret]>" in recording.read_text()
        assert on_disk(tmp_path / "home", canary) == [], "nor in the recording"
    assert in_proc(canary) == [], "with the sandbox it is gone"


async def test_no_screen_shows_it(place, tmp_path, canary):
    async with running(place, tmp_path, canary) as (console, box):
        app = ConsoleApp(console)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: box.name in screen(app))
            for key in ("y", "8", "9", "0", "l", "o"):
                await pilot.press(key)
                await pilot.pause(0.2)
                assert canary not in screen(app), key
            await pilot.press("s")
            await until(pilot, lambda: app.main.detail.shells.in_terminal)
            for char in 'echo "<$TOKEN>"':
                await pilot.press(_KEYS.get(char, char))
            await pilot.press("enter")
            await until(pilot, lambda: "<[secret]>" in screen(app))
            assert canary not in screen(app)
            await pilot.press("ctrl+right_square_bracket")


async def test_the_scan_finds_what_leaked_and_only_that(place, tmp_path, canary, monkeypatch):
    copies = tmp_path / "export"
    copies.mkdir()
    (copies / "shared.txt").write_text(f"one\nurl?token={canary}\n")
    cast = "".join(json.dumps([0.1, "o", char]) + "\n" for char in canary)
    (copies / "typed.cast").write_text('{"version": 3}\n' + cast)
    async with running(place, tmp_path, canary) as (console, box):
        found = [leak async for leak in console.secrets.leaks() if isinstance(leak, Leak)]
        assert found == [], "its own variable is no leak"
        leaking = SandboxSpec(
            f"{box.name}-2", place.image, command=("sh", "-c", "echo $X; sleep 1000"), env={"X": canary}
        )
        made = await console.perform(Create(leaking, box.ref.backend, box.ref.host)).result()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    found = [leak async for leak in console.secrets.leaks([copies]) if isinstance(leak, Leak)]
                    if any(leak.place.startswith("log of") for leak in found):
                        break
                    await asyncio.sleep(0.2)
        finally:
            await console.perform(Remove(made.ref, force=True)).result()
        places = [leak.place for leak in found]
        for start in ("spec of", "log of", "environment of", str(copies / "shared.txt"), str(copies / "typed.cast")):
            assert any(one.startswith(start) for one in places), (start, places)
        assert {leak.secret for leak in found} <= {"TOKEN", "pem"}
        assert len({leak.fingerprint for leak in found}) == 1
        assert canary not in repr(found)
        assert all(box.name + " " not in f"{one} " or "-2" in one for one in places), "nothing of the one that may"


def screen(app: ConsoleApp) -> str:
    return "\n".join("".join(segment.text for segment in line) for line in app.screen._compositor.render_strips())


async def until(pilot, check) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline, screen(pilot.app)
        await pilot.pause(0.05)
