"""Why no microVM boots, as the header and the doctor tell it: the verdicts of the 64-bit test, the last boot, the rest."""

from __future__ import annotations

import os
import shutil
import struct
import time
import types
from pathlib import Path

import pytest

from sandbox_console.backends.microsandbox import diagnosis, kvm, kvm_probe, sdk
from sandbox_console.model.sandbox import HealthState

SAMPLES = Path(__file__).parent / "samples"

pytest.importorskip("microsandbox", reason="microsandbox has no wheel for this platform")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def verdict(tmp_path, monkeypatch):
    """Makes the test of KVM a program of one's own, on a device that is there."""

    def of(program):
        (tmp_path / "kvm").write_bytes(b"")
        (tmp_path / "probe.py").write_text(program)
        monkeypatch.setattr(kvm, "KVM", tmp_path / "kvm")
        monkeypatch.setattr(kvm, "TRIED", True)
        monkeypatch.setattr(kvm_probe, "__file__", str(tmp_path / "probe.py"))
        monkeypatch.setattr(kvm, "_PATIENCE_S", 5.0)
        kvm._tried.cache_clear()
        return kvm._kvm_problem()

    yield of
    kvm._tried.cache_clear()


def boots(home, name, *samples):
    logs = home / "sandboxes" / name / "logs"
    logs.mkdir(parents=True)
    (logs / "runtime.log").write_text("".join((SAMPLES / sample).read_text() for sample in samples))


def test_a_guest_that_answers_is_no_problem(verdict):
    assert verdict("print('ok')") is None


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("print('KVM_EXIT_INTERNAL_ERROR')", "KVM_EXIT_INTERNAL_ERROR"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGALRM)", "never comes back"),
        ("raise SystemExit('out of luck')", "out of luck"),
        ("import time; time.sleep(60)", "did not end"),
    ],
)
def test_each_other_verdict_names_its_cause_and_the_next_step(verdict, program, cause):
    reason, hint = verdict(program)
    assert "/dev/kvm is there, but cannot run a guest in 64-bit mode with paging" in reason
    assert cause in reason
    assert "nested virtualisation" in hint


@pytest.mark.parametrize(
    ("exit_reason", "io", "answer", "word"),
    [
        (2, (1, 1, 0x10), 0x2A, "ok"),
        (2, (1, 1, 0x10), 0x2B, "KVM_EXIT_IO"),  # it ran, and reckoned wrong
        (2, (1, 1, 0x11), 0x2A, "KVM_EXIT_IO"),
        (2, (1, 2, 0x10), 0x2A, "KVM_EXIT_IO"),
        (5, (0, 0, 0), 0, "KVM_EXIT_HLT"),
        (8, (0, 0, 0), 0, "KVM_EXIT_SHUTDOWN"),  # a triple fault
        (9, (0, 0, 0), 0, "KVM_EXIT_FAIL_ENTRY"),
        (17, (0, 0, 0), 0, "KVM_EXIT_INTERNAL_ERROR"),
        (99, (0, 0, 0), 0, "KVM_EXIT_99"),
    ],
)
def test_only_the_right_answer_on_the_right_port_is_ok(exit_reason, io, answer, word):
    state = bytearray(8192)
    direction, size, port = io
    struct.pack_into("<I", state, 8, exit_reason)
    struct.pack_into("<BBHIQ", state, 32, direction, size, port, 1, 4096)
    state[4096] = answer
    assert kvm_probe._verdict(state) == word


def test_a_verdict_is_kept_until_the_device_is_another(verdict, tmp_path):
    assert "first" in verdict("print('first')")[0]
    (tmp_path / "probe.py").write_text("print('second')")
    assert "first" in kvm._kvm_problem()[0]
    (tmp_path / "kvm").chmod(0o640)  # as udev does when it is plugged in anew
    assert "second" in kvm._kvm_problem()[0]


async def test_where_no_guest_can_be_tried_the_last_boot_tells(home, monkeypatch):
    monkeypatch.setattr(kvm, "TRIED", False)
    monkeypatch.setattr(kvm, "problem", lambda: None)
    assert (await diagnosis.health()).state is HealthState.OK
    boots(home, "one", "good.log", "internal-error.log")
    down = await diagnosis.health()
    assert (down.state, "the last boot failed" in down.reason) == (HealthState.UNAVAILABLE, True)
    assert "nested" in down.hint
    [found] = diagnosis._last_boot()
    assert (found.state, "one did not boot" in found.text, found.hint) == ("warning", True, down.hint)
    shutil.rmtree(home / "sandboxes")
    boots(home, "two", "internal-error.log", "good.log")
    assert [one.state for one in diagnosis._last_boot()] == ["ok"]


async def test_a_boot_that_is_under_way_or_that_the_guest_broke_off_is_no_fault_of_the_host(home, monkeypatch):
    monkeypatch.setattr(kvm, "TRIED", False)
    monkeypatch.setattr(kvm, "problem", lambda: None)
    boots(home, "one", "good.log")
    begun, _, _ = (SAMPLES / "good.log").read_text().partition("agent relay: bound")
    boots(home, "two", "good.log")
    log = home / "sandboxes" / "two" / "logs" / "runtime.log"
    log.write_text(begun)
    assert (await diagnosis.health()).state is HealthState.OK
    assert [one.text for one in diagnosis._last_boot()] == ["one booted"]
    os.utime(log, (time.time() - 100, time.time() - 100))
    os.utime(home / "sandboxes" / "one" / "logs" / "runtime.log", (0, 0))
    assert "ended while it booted" in (await diagnosis.health()).reason
    (log.parent / "boot-error.json").write_text('{"message": "the root has no init"}')
    assert (await diagnosis.health()).state is HealthState.OK
    assert "the root has no init" in diagnosis._last_boot()[0].text


async def test_the_doctor_looks_at_kvm_the_runtime_and_the_disk(home):
    found = {one.what: one for one in await diagnosis.look()}
    assert found.keys() == {"kvm", "runtime", "disk"}
    assert (found["kvm"].state == "ok") is (kvm.problem() is None)
    assert found["runtime"].state == "ok"
    assert f"msb {sdk.version()}" in found["runtime"].text
    assert "GiB free" in found["disk"].text
    assert all(one.hint for one in found.values() if one.state != "ok")


async def test_a_runtime_of_another_version_is_named(tmp_path, monkeypatch):
    program = tmp_path / "msb"
    program.write_text("#!/bin/sh\necho msb 0.1.2\n")
    program.chmod(0o755)
    module = types.SimpleNamespace(resolve_runtime=lambda: types.SimpleNamespace(msb_path=str(program)))

    async def load():
        return module

    monkeypatch.setattr(sdk, "load", load)
    found = await diagnosis._runtime()
    assert (found.state, "msb 0.1.2" in found.text, sdk.version() in found.text) == ("warning", True, True)
    assert "MSB_PATH" in found.hint


async def test_a_full_disk_and_a_folder_of_anothers_are_told(home, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=2**30))
    found = diagnosis._disk()
    assert (found.state, found.text.startswith("1.0 GiB free")) == ("warning", True)
    assert "prune" in found.hint
    monkeypatch.setattr(diagnosis.os, "access", lambda *_: False)
    assert "MSB_HOME" in diagnosis._disk().hint
