"""Real deaths on real backends, each told apart from the others."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.incident.conftest import Make, until_ended
from tests.support.engine import IMAGE, DockerEngine
from tests.support.require import missing

from sandbox_console.errors import ConsoleError
from sandbox_console.model import action
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.service.incident import kernel_log
from sandbox_console.service.incident.cause import Cause, cause, judge
from sandbox_console.service.incident.cause_sections import sections
from sandbox_console.service.incident.timeline import timeline

EATS = "tail /dev/zero"

BY_ITSELF = [
    ("finished", "exit 0", {}, r"it finished: exit 0", True),
    ("failed", "echo oh no >&2; exit 3", {}, r"its command failed: exit 3$", True),
    ("missing command", "no-such-program", {}, r"exit 127, command not found", True),
    ("segfault", "sh -c 'kill -SEGV $$'; exit $?", {}, r"crashed: SIGSEGV", True),
    ("abort", "sh -c 'kill -ABRT $$'; exit $?", {}, r"crashed: SIGABRT", True),
    ("memory, of the main process", f"exec {EATS}", {"memory_mib": 32}, r"out of memory", True),
    ("memory, of a child", f"{EATS}; echo it is gone; exit 3", {"memory_mib": 32},
     r"exit 3, after the kernel killed a process of it at its memory limit", True),
    ("disk full", "dd if=/dev/zero of=/dev/full bs=1M count=1 && exit 0; exit 1", {},
     r"exit 1; probably its disk, or its limit of bytes, was full", True),
    ("processes", "i=0; while [ $i -lt 40 ]; do sleep 9 & i=$((i+1)); done; exit 2", {"pids": 16},
     r"exit 2; probably it reached its limit of processes", True),
    ("no name", "echo 'wget: bad address: Could not resolve host: x.example' >&2; exit 4", {},
     r"exit 4; probably it could not resolve a name", True),
]  # fmt: skip


@pytest.mark.parametrize(("how", "script", "fields", "told", "sure"), BY_ITSELF, ids=[one[0] for one in BY_ITSELF])
async def test_by_itself(console: Console, make: Make, how, script, fields, told, sure) -> None:
    sandbox = await until_ended(console, await make("sh", "-c", f"sleep 0.3; {script}", **fields))
    found = await cause(console, sandbox)
    assert found.verdict is not None
    assert re.search(told, found.verdict.headline), found.verdict
    assert found.verdict.sure is sure, found.verdict
    assert found.verdict.evidence


async def _kill(console: Console, ref: SandboxRef) -> None:
    await console.perform(action.Kill(ref, "SIGKILL"), consent=Consent(yes=True, confirm=ref.id)).result()


async def test_killed_by_us_names_who_and_the_row(console: Console, make: Make, monkeypatch) -> None:
    ref = await make("sleep", "1000")
    await _kill(console, ref)
    found = await cause(console, await until_ended(console, ref))
    assert re.match(r"killed by \S+", found.verdict.headline)
    assert any(re.match(r"audit row \d+: kill by", line) for line in found.verdict.evidence)
    assert [one.attempt.action for one in found.changed] == ["create"]
    [listed] = [one for one in (await console.list())[0] if one.ref == ref]
    assert (await cause(console, listed)).verdict == found.verdict, "a list knows less of a sandbox"
    assert await judge(console, listed) == found.verdict


async def test_killed_from_the_host_is_not_claimed_to_be_known(console: Console, make: Make) -> None:
    ref = await make("sleep", "1000")
    pid = (await console.inspect(ref)).pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    found = await cause(console, await until_ended(console, ref))
    assert "unknown by whom" in found.verdict.headline
    assert not found.verdict.sure
    assert any("dmesg" in line for line in found.missing)


@pytest.mark.parametrize("backend", ["docker"], indirect=True)
@pytest.mark.parametrize(("words", "signal"), [(("kill",), "SIGKILL"), (("stop", "-t", "1"), "SIGKILL|SIGTERM")])
async def test_another_client_of_the_engine_is_told(console, make: Make, docker_engine: DockerEngine, words, signal):
    ref = await make("sleep", "1000")
    await asyncio.to_thread(docker_engine.docker, *words, ref.id)
    found = await cause(console, await until_ended(console, ref))
    assert re.match(rf"sent ({signal}) through its backend by another client", found.verdict.headline), found.verdict
    assert any(line.startswith("event kill") for line in found.verdict.evidence)


async def test_137_by_itself(console: Console, make: Make, backend: str) -> None:
    """Docker reports an exit with 137 and a SIGKILL in the same way, and says so."""
    found = await cause(console, await until_ended(console, await make("sh", "-c", "sleep 0.3; exit 137")))
    if backend == "docker":
        assert found.verdict.headline.startswith("killed by SIGKILL, unknown by whom")
        assert not found.verdict.sure
        assert any("exits with 137 by itself" in line for line in found.missing)
    else:
        assert found.verdict.headline == "its command failed: exit 137, its own code: no signal ended it"
        assert found.verdict.sure


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_duration_s": 1.0}, "it ran longer than its limit of 1 s"),
        ({"idle_timeout_s": 1.0}, "idle for longer than its limit of 1 s"),
    ],
    ids=["time limit", "idle"],
)
async def test_limits_in_time(console: Console, make: Make, fields, told) -> None:
    found = await cause(console, await until_ended(console, await make("sleep", "1000", **fields)))
    assert found.verdict.headline == told
    assert found.verdict.sure


async def test_another_console_of_the_same_state_is_named(
    console: Console, make: Make, backend: str, monkeypatch
) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:somebody-else")
    ref = await make("sleep", "1000")
    async with open_console(Config(), only_backend=backend) as other:
        await _kill(other, ref)
    found = await cause(console, await until_ended(console, ref))
    assert found.verdict.headline == "killed by user:somebody-else"


@pytest.mark.parametrize("backend", ["docker"], indirect=True)
async def test_files_used_up_are_not_a_full_disk(console: Console, make: Make) -> None:
    """A sandbox's /tmp on Docker has 65,536 files."""
    script = "cd /tmp; seq 70000 | xargs touch || exit 6"
    found = await cause(console, await until_ended(console, await make("sh", "-c", script)))
    assert found.verdict.headline == "its command failed: exit 6; probably its limit of files (inodes) was used up"


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_files_of_the_workspace_used_up(console: Console, make: Make) -> None:
    folder = Path(tempfile.mkdtemp(prefix="small-"))  # not below pytest's folder, which only its owner may enter
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=20,mode=777", "small", str(folder)], check=True)
    try:
        script = "cd /workspace; for i in $(seq 40); do touch file$i || exit 6; done"
        found = await cause(console, await until_ended(console, await make("sh", "-c", script, workspace=str(folder))))
        assert found.verdict.headline == "its command failed: exit 6; probably its limit of files (inodes) was used up"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_a_supervisor_that_was_killed(console: Console, make: Make, home: Path) -> None:
    ref = await make("sleep", "1000")
    supervisor = _status(home, ref)["supervisor"]
    os.kill(supervisor, signal.SIGKILL)
    async with asyncio.timeout(30):
        while (sandbox := await console.inspect(ref)).status is not Status.LOST:
            await asyncio.sleep(0.05)
    found = await cause(console, sandbox)
    assert found.verdict.headline == f"lost: its supervisor (pid {supervisor}) is gone"
    assert not found.verdict.sure


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_a_gateway_that_was_killed(console: Console, make: Make, home: Path) -> None:
    """The supervisor starts another one at once; what the command was doing has failed by then."""
    ref = await make("sh", "-c", "sleep 2; exit 4", egress=("api.example",))
    supervisor = _status(home, ref)["supervisor"]
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    [gateway] = [pid for pid in children if "egress" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(int(gateway), signal.SIGKILL)
    found = await cause(console, await until_ended(console, ref))
    assert found.verdict.headline == "its command failed: exit 4, after its egress gateway ended"


def test_out_of_memory_kills_in_the_kernels_log() -> None:
    """Records as Linux 6.18 writes them to /dev/kmsg; a guest cannot write there."""
    line = (
        b"6,1200,5140900,-;oom-kill:constraint=%s,nodemask=(null),cpuset=abc,mems_allowed=0,oom_memcg=/docker/abc,"
        b"task_memcg=/docker/%s,task=tail,pid=4711,uid=0\n"
    )
    records = [b"6,1,2,-;usual\n", line % (b"CONSTRAINT_MEMCG", b"abc"), line % (b"CONSTRAINT_NONE", b"other"), b"junk"]
    mine, others = kernel_log._kills(iter(records))
    assert (mine.pid, mine.group, mine.limit) == (4711, "/docker/abc", True)
    assert (others.group, others.limit) == ("/docker/other", False)
    assert kernel_log.oom_kills("no such sandbox", 0.0) == []


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_a_restart_of_the_machine(console: Console, make: Make, home: Path) -> None:
    """Staged: what a restart leaves behind is a record of another boot, and no supervisor."""
    ref = await make("sleep", "1000")
    os.kill(_status(home, ref)["supervisor"], signal.SIGKILL)
    path = _status_file(home, ref)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    found = await cause(console, await console.inspect(ref))
    assert found.verdict.headline == "lost: the machine was restarted while it ran"


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_an_image_whose_program_is_for_another_machine(console: Console, make: Make) -> None:
    """A first start that fails is an error of ``create``, which leaves nothing behind. This image went bad later."""
    root = Path(tempfile.mkdtemp(prefix="root-"))
    try:
        root.chmod(0o755)
        (root / "bin").mkdir()
        shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin" / "sh")
        ref = await make("/bin/sh", "-c", "exit 0", image=f"dir:{root}")
        await until_ended(console, ref)
        (root / "bin" / "sh").write_bytes(b"\x7fELF of another machine")
        with pytest.raises(ConsoleError):
            await console.perform(action.Start(ref)).result()
        found = await cause(console, await console.inspect(ref))
        assert re.match("it never ran: .*Exec format error", found.verdict.headline), found.verdict
        assert found.verdict.sure
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("backend", ["docker"], indirect=True)
async def test_an_image_of_another_machine(console: Console, docker_engine: DockerEngine) -> None:
    data, tree = b"\x7fELF of another machine", io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as tar:
        shell = tarfile.TarInfo("bin/sh")
        shell.mode, shell.size = 0o755, len(data)
        tar.addfile(shell, io.BytesIO(data))
    docker_engine.docker("import", "-", "ill:1", stdin=tree.getvalue())
    ended = await _failed_start(console, SandboxSpec("ill", "ill:1", ("/bin/sh", "-c", "true")), ("docker", "default"))
    assert ended.verdict.headline.endswith("probably its program is for another kind of machine"), ended.verdict


async def _failed_start(console: Console, spec: SandboxSpec, place: tuple[str, str]) -> Cause:
    """The cause of a sandbox whose start failed; it is there to be looked at, and is removed."""
    with contextlib.suppress(ConsoleError):
        await console.perform(action.Create(spec, *place)).result()
    [sandbox] = [one for one in (await console.list(place[0]))[0] if one.name == spec.name]
    try:
        return await cause(console, await until_ended(console, sandbox.ref))
    finally:
        consent = Consent(yes=True, confirm=sandbox.ref.id)
        await console.perform(action.Remove(sandbox.ref, force=True), consent=consent).result()


def _status_file(home: Path, ref: SandboxRef) -> Path:
    [path] = home.rglob(f"{ref.id}/status.json")
    return path


def _status(home: Path, ref: SandboxRef) -> dict[str, Any]:
    return json.loads(_status_file(home, ref).read_text())


class StopsItsContainers(DockerEngine):
    """An engine as most are configured: its containers end with it."""

    def _command(self) -> list[str]:
        return [word for word in super()._command() if word != "--live-restore"]


@pytest.mark.slow
async def test_an_engine_that_was_restarted(home: Path, tmp_path: Path, monkeypatch) -> None:
    if why := missing("docker"):
        pytest.skip(why)
    engine = StopsItsContainers(Path(tempfile.mkdtemp(prefix="eng-")))
    engine.start()
    try:
        engine.build_images()
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        async with open_console(Config(), only_backend="docker") as console:
            spec = SandboxSpec("web", IMAGE, ("sleep", "1000"))
            ref = (await console.perform(action.Create(spec, "docker", "default")).result()).ref
            await asyncio.to_thread(engine.halt)
            await asyncio.to_thread(engine.start)
        async with open_console(Config(), only_backend="docker") as console:
            found = await cause(console, await until_ended(console, ref))
            assert found.verdict.headline == "it ended with its engine, which was stopped or restarted", found.verdict
            assert any(line.startswith("it began again") for line in found.verdict.evidence)
            told = await timeline(console, [found.sandbox])
            assert "engine_start" in {one.what for one in told.moments}
    finally:
        engine.stop()


async def test_the_last_words_are_of_stderr_cleaned_and_of_a_running_one_nothing_ended(console, make: Make) -> None:
    ref = await make("sh", "-c", r"echo out; printf 'bad \033]52;c;AAAA\007thing\n' >&2; exit 9")
    runs = await make("sleep", "1000")
    found = await cause(console, await until_ended(console, ref))
    [line] = found.last_words
    assert "bad" in line
    assert "\x1b" not in line
    assert (await cause(console, await console.inspect(runs))).verdict is None


async def test_a_healthy_sibling_shows_what_differs(console: Console, make: Make) -> None:
    script = ("sh", "-c", '[ -n "$GOOD" ] && sleep 1000; exit 5')
    well = await make(*script, name="well", env={"GOOD": "yes"}, pids=64)
    ill = await make(*script, name="ill", pids=32)
    found = await cause(console, await until_ended(console, ill))
    assert found.beside == (await console.inspect(well)).name
    assert set(found.differs) == {("env", "-", "GOOD"), ("pids", "32", "64")}


async def test_another_image_of_the_same_name_is_shown(console, make: Make, backend: str, request) -> None:
    if backend != "docker":
        pytest.skip("bubblewrap's images are folders, which have no id")
    engine: DockerEngine = request.getfixturevalue("docker_engine")
    script = ("sh", "-c", "[ -e /broken ] && exit 5; sleep 1000")
    engine.docker("tag", IMAGE, "team:1")
    try:
        await make(*script, name="well", image="team:1")
        engine.docker("run", "--name", "breaks", IMAGE, "touch", "/broken")
        engine.docker("commit", "breaks", "team:1")
        found = await cause(console, await until_ended(console, await make(*script, name="ill", image="team:1")))
    finally:
        engine.docker("rm", "breaks")
    [(field, here, there)] = found.differs
    assert field == "image id"
    assert here != there
    assert here.startswith("sha256:")


@pytest.mark.parametrize(
    "fields", [{"memory_mib": 16}, {"memory_mib": 16, "env": {"A": "b"}}], ids=["live", "recreate"]
)
async def test_what_changed_since_it_last_worked(console: Console, make: Make, fields) -> None:
    """It was right after an update, too, that the update was taken for what ended it."""
    script = ("sh", "-c", "head -c 40000000 /dev/zero | tail -c 40000000 >/dev/null; exit $?")
    ref = await make(*script, memory_mib=64)
    await until_ended(console, ref)
    good = time.time()
    spec = (await console.inspect(ref)).spec
    update = action.Update(ref, structs.replace(spec, **fields))
    changed = (await console.perform(update, consent=Consent(yes=True)).result()).ref
    assert changed
    await console.perform(action.Start(changed)).result()
    found = await cause(console, await until_ended(console, changed))
    assert found.verdict is not None
    assert "memory" in found.verdict.headline
    assert [one.attempt.action for one in found.changed] == ["update", "create"]
    assert found.worked_at is not None
    assert found.changed[1].attempt.at_ns / 1e9 < found.worked_at
    heads = {one.head.partition(",")[0]: one.lines for one in sections(found, good, str)}
    [since] = heads["Changed since it last worked"]
    assert "memory_mib: 64 → 16" in since
    [before] = heads["Changed before"]
    assert "create" in before
    if changed != ref:
        await console.perform(action.Remove(changed, force=True), consent=Consent(yes=True)).result()


async def test_a_start_that_failed_is_told_though_the_engine_forgot_it(console, make: Make, backend: str) -> None:
    if backend != "docker":
        pytest.skip("bubblewrap tells it itself")
    [place] = console.places
    spec = SandboxSpec("none", IMAGE, ("no-such-program",))
    ref = (await console.perform(action.Create(spec, *place, start=False)).result()).ref
    assert ref
    try:
        assert await judge(console, await console.inspect(ref)) is None
        with pytest.raises(ConsoleError):
            await console.perform(action.Start(ref)).result()
        found = await judge(console, await console.inspect(ref))
        assert found
        assert re.fullmatch("it never ran: .*no program 'no-such-program'.*", found.headline)
    finally:
        await console.perform(action.Remove(ref, force=True), consent=Consent(yes=True)).result()


async def test_a_long_line_does_not_push_the_other_last_words_out(console: Console, make: Make) -> None:
    """It comes in pieces of 64 KiB, each of which was taken for a line."""
    flood = "head -c 2000000 /dev/zero | tr '\\0' '['"
    ref = await make("sh", "-c", f"(echo first word; {flood}; echo; echo last word) >&2; exit 3")
    words = (await cause(console, await until_ended(console, ref))).last_words
    assert (words[0], words[-1]) == ("first word", "last word")
    assert [word[:2] for word in words] == ["fi", "[[", "la"]
