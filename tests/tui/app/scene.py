"""Six sandboxes that show what there is to show, and ways to look at the app."""

from __future__ import annotations

from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.service.config import TuiOptions

NOW = 1_700_000_600.0
NS = 10**9


def ref(id_: str, backend: str = "fake") -> SandboxRef:
    return SandboxRef(backend, "local", id_)


def sandbox(id_, name, status=Status.RUNNING, *, managed=True, spec=None, **fields):
    spec = spec or SandboxSpec(name=name, image="python:3.12", cpus=0.5, memory_mib=256, egress=("acme.org",))
    return Sandbox(
        ref(id_), name, status, fields.pop("image", "python:3.12"), created_at=NOW - 600, started_at=NOW - 590,
        managed=managed, spec=spec if managed else None, **fields,
    )  # fmt: skip


def fleet():
    return [
        sandbox("aaaaaaaaaaaa", "agent", labels={"team": "red"}, pid=42, effective=(
            Fact("egress", "acme.org:80,443", "by the gateway"),
            Fact("cpus", "0.5", "no cgroup is writable", enforced=False),
            Fact("network", "none"),
        )),
        sandbox("bbbbbbbbbbbb", "builder", spec=SandboxSpec("builder", image="rust:1", secrets=("TOKEN",)), image="rust:1"),
        sandbox("cccccccccccc", "crashed", Status.EXITED, exit=Exit(137, 9, oom=True), finished_at=NOW - 60),
        sandbox("dddddddddddd", "done", Status.EXITED, exit=Exit(3), finished_at=NOW - 30, labels={"team": "blue"}),
        sandbox("eeeeeeeeeeee", "theirs", managed=False, maker="compose", image="postgres:16"),
        sandbox("ffffffffffff", "lost", Status.LOST, detail="its supervisor went away at the last reboot"),
    ]  # fmt: skip


def log_lines():
    return {
        "aaaaaaaaaaaa": [
            LogRecord(
                int((NOW - 9 + at) * NS), Stream.STDERR if at % 3 == 2 else Stream.STDOUT, f"step {at} of 9\n".encode()
            )
            for at in range(9)
        ]
    }


def samples():
    return {
        "aaaaaaaaaaaa": [Stats(NOW, 12.5, 48 << 20, 256 << 20, pids=3)],
        "bbbbbbbbbbbb": [Stats(NOW, 187.0, 900 << 20)],
        "eeeeeeeeeeee": [Stats(NOW, 0.4, 31 << 20)],
    }


def make_console(*backends, config=None, **options):
    """One sample a sandbox unless the config says otherwise: a second one draws a graph, whenever it comes."""
    usual = Config(backend="fake", tui=TuiOptions(stats_interval_s=3600.0))
    return open_console(config or usual, backends=list(backends), **options)


async def until(pilot, check, limit_s=30.0):
    """Wait until something is so, without a fixed sleep that is too short or too long."""
    waited = 0.0
    while not check():
        assert waited < limit_s, "it did not become so"
        await pilot.pause(0.02)
        waited += 0.02
    await pilot.pause()


def screen_text(app):
    """The characters on screen."""
    return "\n".join("".join(segment.text for segment in line) for line in app.screen._compositor.render_strips())
