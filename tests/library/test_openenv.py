"""OpenEnv's harness protocol on sandboxes of ours.

The protocols here are a stand-in, written from OpenEnv's opencode_env: its package on PyPI has neither them nor its
OpenCodeSessionFactory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import uuid4

import pytest
from tests.library.conftest import EVERY, IMAGES, chosen

from sandbox_console import NotFound, sync
from sandbox_console.adapters import openenv


@runtime_checkable
class ExecResult(Protocol):
    exit_code: int
    stdout: str
    stderr: str


@runtime_checkable
class BgJob(Protocol):
    @property
    def pid(self) -> int: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


@runtime_checkable
class SandboxHandle(Protocol):
    @property
    def sandbox_id(self) -> str: ...
    def exec(
        self, cmd: str, *, envs: Mapping[str, str] | None = None, cwd: str | None = None, timeout: float | None = 60
    ) -> ExecResult: ...
    def start_bg(self, cmd: str, *, envs: Mapping[str, str] | None = None, cwd: str | None = None) -> BgJob: ...
    def write_text(self, path: str, content: str) -> None: ...
    def read_text(self, path: str) -> str: ...
    def exists(self, path: str) -> bool: ...
    def kill(self) -> None: ...


@runtime_checkable
class SandboxBackend(Protocol):
    def create(
        self,
        *,
        timeout_s: float = 900,
        envs: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SandboxHandle: ...


class Harness:
    """What a session of OpenEnv does: a task file in, a server beside, a command, and what it left out."""

    def __init__(self, backend: SandboxBackend) -> None:
        self.backend = backend

    def run(self, task: str) -> str:
        box = self.backend.create(timeout_s=300, envs={"KEY": "v"}, metadata={"task": "t1"})
        try:
            box.write_text("/tmp/in/deep/task.txt", task)
            proxy = box.start_bg("sleep 1000 & exec sleep 1000")
            assert box.exec(f"test -d /proc/{proxy.pid}").exit_code == 0
            done = box.exec('cat task.txt; echo "$KEY $MORE"', envs={"MORE": "w"}, cwd="/tmp/in/deep")
            proxy.kill()
            assert box.exec(f"test -d /proc/{proxy.pid}").exit_code == 1
            return done.stdout
        finally:
            box.kill()


@pytest.fixture(params=EVERY)
def backend(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return chosen(request, monkeypatch)


@pytest.fixture
def console(backend):
    with sync.open_console(backend=backend) as made:
        yield made


@pytest.fixture
def maker(console, backend) -> openenv.SandboxBackend:
    return openenv.SandboxBackend(console, image=IMAGES[backend])


def test_it_is_a_backend_and_a_harness_runs_on_it(maker, console) -> None:
    assert isinstance(maker, SandboxBackend)
    assert Harness(maker).run("do it\n") == "do it\nv w\n"
    rows, _ = console.list()
    assert not [row.name for row in rows if row.name.startswith("openenv-")]


def test_a_handle_has_what_the_protocol_has(maker, console) -> None:
    box = maker.create(metadata={"run": "7"})
    try:
        assert isinstance(box, SandboxHandle)
        shown = console.sandbox(box.sandbox_id).inspect()
        assert shown.labels["run"] == "7"
        assert shown.spec.max_duration_s == 900
        done = box.exec("echo out; echo err >&2; exit 3")
        assert isinstance(done, ExecResult)
        assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
        assert box.exec("sleep 60", timeout=0.5).exit_code == 124
        name = f"/tmp/{uuid4().hex}/ü"
        assert not box.exists(name)
        box.write_text(name, "ä\n")
        assert box.exists(name)
        assert box.read_text(name) == "ä\n"
        with pytest.raises(NotFound):
            box.read_text("/tmp/nothing")
        job = box.start_bg("sleep 0.3; exit 5")
        assert isinstance(job, BgJob)
        assert job.wait(30) == 5
        job.kill()
        loud = box.start_bg("yes & sleep 0.5")
        with pytest.raises(TimeoutError):
            loud.wait(0.01)
        loud.kill()
        loud.kill()
        loud.wait(30)
    finally:
        box.kill()
        box.kill()
    with pytest.raises(NotFound):
        box.exec("true")


def test_its_time_ends_it_without_us(maker, console) -> None:
    box = maker.create(timeout_s=1)
    try:
        assert "max_duration_s" in console.sandbox(box.sandbox_id).wait(timeout_s=60).reason
    finally:
        box.kill()
