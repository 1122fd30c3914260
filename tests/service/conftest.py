from __future__ import annotations

import pytest

from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

REF = SandboxRef("fake", "local", "box-id-1")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def db(home):
    return home / "state" / "audit" / "audit.db"


@pytest.fixture
def box():
    return Sandbox(REF, "box", Status.RUNNING, "x", spec=SandboxSpec("box", image="x"))
