"""Verbs by label, prune, wait and the forms of ``ls``: what is chosen, what is asked, and whose it is."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest
from msgspec import structs
from tests.cli.golden import Golden, fleet, sandboxes

from sandbox_console.model.sandbox import Exit, Status
from sandbox_console.testing.fake_backend import FakeBackend


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")


def labelled() -> FakeBackend:
    """Two of ours and one of another tool's with one label, another of ours without."""
    web, batch, _, theirs, *_ = sandboxes()
    label = {"team": "x"}
    return FakeBackend(
        [web, structs.replace(batch, labels=label), structs.replace(theirs, labels=label),
         structs.replace(batch, ref=structs.replace(batch.ref, id="fffffffffff6"), name="job", labels=label | {"n": "a\nb"})]
    )  # fmt: skip


def left(backend: FakeBackend) -> str:
    golden = Golden([backend])
    golden("ls --all --format {{.Name}}")
    return " ".join(golden.transcript.splitlines()[1:-1])


def test_verbs_by_label() -> None:
    golden = Golden([labelled()])
    for line in (
        "rm -l team=x", "rm -l team=x --json", "rm -l team=x --dry-run", "rm -l team=x --dry-run --json",
        "rm -l team=x --yes", "rm -l team=x --yes", "rm -l team", "rm web -l team=core", "stop", "stop web --dry-run",
        "stop -l team=core --yes --json", "ls --all",
    ):  # fmt: skip
        golden(line)
    golden.check("by_label")


def test_prune_takes_ours_that_have_ended_and_no_other() -> None:
    web, batch, lost, *theirs = sandboxes()
    made = structs.replace(
        web, ref=structs.replace(web.ref, id="fffffffffff7"), name="made", status=Status.CREATED, labels={}
    )
    backend = FakeBackend([web, batch, lost, made, *theirs])
    golden = Golden([backend])
    golden("prune --dry-run")
    golden("prune")
    assert "theirs-old" not in golden.transcript
    assert left(backend).count(" ") == 5
    assert golden("prune --yes") == 0
    assert left(backend) == "made theirs theirs-old web"


def test_a_host_that_was_not_looked_at_is_a_failure_of_a_verb_by_label() -> None:
    golden = Golden(fleet(dead=True))
    assert golden("stop -l team=core --yes") == 5
    assert "gone/local was not searched" in golden.transcript or "gone was not searched" in golden.transcript
    assert "\nweb\n" in golden.transcript, "what was found is done all the same"
    golden = Golden(fleet(dead=True))
    assert golden("stop -l team=core --yes --only-answering") == 0
    assert "was not searched" not in golden.transcript


@pytest.mark.parametrize(("typed", "code", "gone"), [(b"y\n", 0, True), (b"\n", 1, False), (b"no\n", 1, False)])
def test_the_question_at_a_terminal(typed: bytes, code: int, gone: bool) -> None:
    backend = labelled()
    golden = Golden([backend], err_tty=True)
    master, slave = pty.openpty()
    os.write(master, typed)
    try:
        assert golden("rm -l team=x", stdin=slave) == code
    finally:
        os.close(master)
        os.close(slave)
    assert "! rm 2 sandboxes: batch, job\n! Go on? [y/N]\n" in golden.transcript
    assert left(backend) == ("theirs web" if gone else "batch job theirs web")


def test_ls_in_the_form_that_is_asked_for() -> None:
    golden = Golden([labelled()])
    for line in (
        "ls -q", "ls --no-header", "ls --format '{{.Name}}\\t{{ .State }} {{.Label \"n\"}}|{{.Labels}}'",
        "ls -l n --format '{{json .}}'", "ls --format '{{json .}}' -l team=core", "ls --format {{.Nme}}", "ls --format '{{Name}}'",
        "ls --format {{.Label}}", "ls --format '{{.Name}} {{json .Labels}} {{json .State}}'", "ls --format '{{json .Nme}}'", "ls -q --json", "ls -q --watch", "ls -q -l team=none",
    ):  # fmt: skip
        golden(line)
    golden.check("ls_forms")


def test_wait_tells_exit_codes_and_gives_up_in_time() -> None:
    golden = Golden(fleet())
    for line in (
        "wait batch",
        "wait batch --json",
        "wait batch nope theirs-old",
        "wait web --timeout 0s",
        "wait web --timeout soon",
    ):
        golden(line)
    golden.check("wait")


def test_wait_sees_the_end() -> None:
    looks = []

    class Ending(FakeBackend):
        async def inspect(self, ref):
            looks.append(ref)
            found = await super().inspect(ref)
            return structs.replace(found, status=Status.EXITED, exit=Exit(3)) if len(looks) > 1 else found

    golden = Golden([Ending(sandboxes())])
    assert golden("wait web") == 0
    assert golden.transcript == "$ wait web\n3\n[0]\n"
    assert len(looks) == 2
