"""A folder for temporary files that a guest can write is not used, by this process or by those that it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import pytest

from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, known_ground, open_console
from sandbox_console.service.reads import folder_guard
from sandbox_console.testing.fake_backend import FakeBackend


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A workspace of a sandbox, in which TMPDIR is; the choice of this process is undone after the test."""
    home = tmp_path / "home"
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(home))
    (home / "state").mkdir(mode=0o700, parents=True)
    workspace = tmp_path / "work"
    (workspace / "tmp").mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(workspace / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return workspace


def boxes(workspace):
    ref = SandboxRef("fake", "local", "abc")
    return FakeBackend(
        [Sandbox(ref, "box", Status.RUNNING, spec=SandboxSpec("box", image="x", workspace=str(workspace)))]
    )


def known(tmp_path, *folders):
    file = tmp_path / "home" / "state" / "shares.json"
    file.write_text(json.dumps({"fake/local": [str(folder) for folder in folders]}))
    file.chmod(0o600)


def safe(workspace):
    made = tempfile.mkdtemp()
    os.rmdir(made)
    child = subprocess.run(
        [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return [not os.path.realpath(place).startswith(f"{workspace}/") for place in (made, f"{child}/x")]


async def test_a_console_that_knows_the_workspace_leaves_it_alone(tmp_path, workspace):
    assert safe(workspace) == [False, False]
    known(tmp_path, workspace)
    tempfile.tempdir = None
    async with open_console(Config(), backends=[boxes(workspace)]):
        assert safe(workspace) == [True, True]


async def test_a_workspace_that_is_learned_of_later_is_left(tmp_path, workspace):
    async with open_console(Config(), backends=[boxes(workspace)]) as console:
        await console.ground()
        assert safe(workspace) == [True, True]


def test_a_verb_without_a_console_leaves_it_too(tmp_path, workspace):
    known(tmp_path, workspace)
    known_ground()
    assert safe(workspace) == [True, True]


def test_a_link_in_a_workspace_is_not_followed(tmp_path, workspace, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("TMPDIR", str(workspace / "link"))
    known(tmp_path, workspace)
    known_ground()
    assert not tempfile.gettempdir().startswith((str(workspace), str(tmp_path / "elsewhere")))


def test_the_last_resort_is_in_the_state_folder(tmp_path, workspace, monkeypatch):
    monkeypatch.setattr(folder_guard, "_TEMPORARY", (str(workspace),))
    known(tmp_path, workspace)
    known_ground()
    assert tempfile.gettempdir() == str(tmp_path / "home" / "state" / "tmp")
    assert (tmp_path / "home" / "state" / "tmp").stat().st_mode & 0o777 == 0o700


def test_a_folder_with_a_workspace_in_it_is_used(tmp_path, workspace):
    known(tmp_path, workspace / "tmp" / "inner")
    (workspace / "tmp" / "inner").mkdir()
    known_ground()
    assert tempfile.gettempdir() == str(workspace / "tmp")
