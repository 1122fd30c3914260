"""The harness of `make test-microvm`: what it does without a machine."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import types

import pytest
from tests.support.microvm import machine as machines
from tests.support.microvm import part, parts, shard, suite
from tests.support.microvm.machine import DEAD


class Machine:
    """Ends with each code in turn, and says each text."""

    def __init__(self, *runs, stillborn=0):
        self.runs, self.booted, self.commands, self.stillborn = list(runs), 0, [], stillborn

    def up(self):
        self.booted += 1
        if self.booted <= self.stillborn:
            raise parts.MachineError("the machine did not come up")

    def run(self, argv, *, sink, **_):
        self.commands.append(argv)
        code, text = self.runs.pop(0)
        for at in range(0, len(text), 7):  # as it comes: in pieces
            sink(b"o", text[at : at + 7])
        return code

    def alive(self):
        return True

    def console(self):
        return "panic"


@pytest.fixture
def one(monkeypatch, capsys):
    """A part whose machine is the given one."""

    def of(machine):
        monkeypatch.setattr(part, "Machine", lambda name: machine)
        return part.Part("x", 0, 2, ["tests/a.py"])

    return of


BEGAN = b"tests/a.py::test_1 PASSED [ 1%]\ntests/a.py::test_2[a b] FAILED [ 2%]\ntests/a.py::test_3 "
REST = b"tests/a.py::test_3 PASSED\ntests/a.py::test_4 XFAIL (why)\n"


def test_a_machine_that_dies_is_booted_once_more_and_goes_on(one):
    machine = Machine((DEAD, BEGAN), (0, REST))
    tried = one(machine)
    assert tried.run(float("inf")) == 0
    assert machine.booted == 2
    assert machine.commands[1][-5:] == [
        *("--deselect", "tests/a.py::test_1", "--deselect", "tests/a.py::test_2[a b]"),
        "tests/a.py",
    ]
    assert tried.failed() == ["tests/a.py::test_2[a b]"]


def test_one_that_does_not_boot_is_booted_once_more(one):
    assert one(Machine((0, REST), stillborn=1)).run(float("inf")) == 0
    with pytest.raises(parts.MachineError):
        one(Machine((0, REST), stillborn=2)).run(float("inf"))


def test_one_that_dies_twice_is_a_failure(one):
    machine = Machine((DEAD, BEGAN), (DEAD, b""))
    assert one(machine).run(float("inf")) == DEAD
    assert machine.booted == 2


@pytest.mark.parametrize(("answers", "patience_s", "code"), [(True, 30.0, 7), (False, 0.2, DEAD)])
def test_a_command_that_is_silent_in_a_kernel_that_hangs_is_dead(monkeypatch, tmp_path, answers, patience_s, code):
    monkeypatch.setattr(machines, "cache", lambda: tmp_path)
    for name, seconds in (("LOOK_S", 0.05), ("SILENT_S", 0.2), ("ANSWER_S", patience_s)):
        monkeypatch.setattr(machines, name, seconds)
    one = machines.Machine("x")
    monkeypatch.setattr(one, "alive", lambda: True)
    one.share.mkdir(parents=True)
    (one.share / "token").write_text("t")
    with socket.create_server(("127.0.0.1", 0)) as server:
        (one.folder / "port").write_text(str(server.getsockname()[1]))
        threading.Thread(target=agent, args=(server, answers), daemon=True).start()
        assert one.run(["long"]) == code


def agent(server, answers):
    """One whose kernel answers, or does not: the command ends when it was asked whether it does."""
    command, _ = server.accept()
    asked, _ = server.accept()
    if answers:
        for door, said in ((asked, b"0"), (command, b"7")):
            door.sendall(b"x" + len(said).to_bytes(4, "big") + said)
    with command, asked, contextlib.suppress(OSError):
        while command.recv(4096):
            pass


def test_what_fails_is_tried_once_more_alone(one):
    machine = Machine((1, BEGAN), (0, b"tests/a.py::test_2[a b] PASSED\n"))
    tried = one(machine)
    code = tried.run(float("inf"))
    assert suite._judged([tried], [code], float("inf")) == 0
    assert machine.commands[1][-1] == "tests/a.py::test_2[a b]"
    assert tried.failed() == []
    again = one(Machine((1, BEGAN), (1, b"tests/a.py::test_2[a b] FAILED\n")))
    assert suite._judged([again], [again.run(float("inf"))], float("inf")) == 1


def test_a_part_without_a_test_is_no_failure(one):
    assert one(Machine((part.NOTHING, b""))).run(float("inf")) == 0


def test_the_parts_together_are_all_tests_each_once(monkeypatch):
    config = types.SimpleNamespace(hook=types.SimpleNamespace(pytest_deselected=lambda items: None))
    found = []
    for number in range(3):
        monkeypatch.setenv("SHARD", f"{number}/3")
        items = list(range(10))
        shard.pytest_collection_modifyitems(config, items)
        found += items
    assert sorted(found) == list(range(10))


def test_results_of_the_machines_are_put_together():
    one = {"microsandbox": {"files": {"a": ["pass", ""]}}}
    two = {"microsandbox": {"files": {"b": ["pass", ""]}, "logs": {"c": ["FAIL", ""]}}}
    three = {"microsandbox": {"logs": {"c": ["pass", ""]}}}
    assert suite._together([one, two, three]) == {
        "microsandbox": {"files": {"a": ["pass", ""], "b": ["pass", ""]}, "logs": {"c": ["pass", ""]}}
    }


def test_parts_that_were_changed_are_made_anew(tmp_path):
    for name in ("vmlinuz", "initrd.gz"):
        (tmp_path / name).write_bytes(name.encode())
    sums = "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("vmlinuz", "initrd.gz"))
    (tmp_path / "SHA256SUMS").write_text(sums)
    assert parts._whole(tmp_path)
    (tmp_path / "vmlinuz").write_bytes(b"another")
    assert not parts._whole(tmp_path)
    assert not parts._whole(tmp_path / "none")
