"""The command line in this process, on fake backends and a clock that stands still, as text to compare."""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import Backend
from sandbox_console.cli import parser
from sandbox_console.cli.context import Sink, Streams
from sandbox_console.cli.run import run
from sandbox_console.model.log import LogGap, LogRecord, Stream
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Console, open_console
from sandbox_console.testing.fake_backend import FakeBackend

NOW = 1_700_010_000.0
FOLDER = Path(__file__).with_name("golden")

_CHANGING = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r'("session": "|session +)[0-9a-f]{16,}'), r"\1<session>"),
    (re.compile(r'("request_id": ")[^"]+'), r"\1<request>"),
    (re.compile(r'("at_ns": )(?!17000)\d+'), r"\1<ns>"),
    (re.compile(r'("dur_us": )\d+'), r"\1<us>"),
    (re.compile(r'("(?:anchored|first|last)_at": )[\d.]+'), r"\1<s>"),
    (re.compile(r"[\d,]+ bytes in"), "<bytes> bytes in"),
    (re.compile(r'(segments?[,:] |"segments": 1, "bytes": )[\d,]+'), r"\1<bytes>"),
    (re.compile(r"(took +)[\d.]+ s"), r"\1<s>"),
    (re.compile(r"20(?!23)\d\d-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r'("origin": )\{[^}]*\}'), r"\1<origin>"),
    (re.compile(r"^  origin\..*\n", re.MULTILINE), ""),
    (re.compile(r"/[^\s\"]+/templates\b"), "<home>/templates"),
    (re.compile(r"is set in \S+/config\.toml"), "is set in <home>/config.toml"),
)

Made = Callable[[], Sequence[Backend]]


def sandboxes() -> list[Sandbox]:
    """Ours running, ours ended, ours hostile, another's running, another's ended."""

    def ref(id: str) -> SandboxRef:
        return SandboxRef("fake", "local", id)

    spec = SandboxSpec(
        "web", "python:3.12", ("python", "-m", "http.server"), cpus=1.5, memory_mib=512,
        env={"MODE": "test", "API_KEY": "canary", "DB": "postgres://u:canary@db.example.com/x"}, labels={"team": "core"}, workspace="/srv/web",
    )  # fmt: skip
    facts = (
        Fact("cpus", "1.5", "cgroup"),
        Fact("memory_mib", "512", "no cgroup here", enforced=False),
        Fact("network", "none"),
    )
    return [
        Sandbox(
            ref("aaaaaaaaaaa1"), "web", Status.RUNNING, "python:3.12", NOW - 7300, NOW - 7299, labels={"team": "core"},
            spec=spec, effective=facts, pid=41, restarts=0,
        ),
        Sandbox(
            ref("bbbbbbbbbbb2"), "batch", Status.EXITED, "host", NOW - 300, NOW - 299, NOW - 100,
            exit=Exit(137, 9, oom=True, reason="out of memory"), spec=SandboxSpec("batch", "host"),
        ),
        Sandbox(
            ref("ccccccccccc3"), "\x1b]52;c;AAAA\x07\u202eevil", Status.LOST, "\u6f22\u5b57:latest", NOW - 90,
            labels={"x": "\x1b[2J"}, detail="its supervisor went away\x1b[1m",
        ),
        Sandbox(
            ref("ddddddddddd4"), "theirs", Status.RUNNING, "redis:7", NOW - 86400 * 3, NOW - 86400 * 3, managed=False,
            maker="compose",
        ),
        Sandbox(
            ref("eeeeeeeeeee5"), "theirs-old", Status.EXITED, "redis:6", NOW - 86400 * 9, exit=Exit(0), managed=False,
        ),
    ]  # fmt: skip


def _logs() -> dict[str, list[LogRecord | LogGap]]:
    def at(second: float) -> int:
        return int((NOW - 60 + second) * 1e9)

    return {
        "aaaaaaaaaaa1": [
            LogRecord(at(0), Stream.STDOUT, b"starting\n"),
            LogRecord(at(2), Stream.STDERR, b"warning: \x1b[33mslow\x1b[0m\n"),
            LogGap(at(3), "rotated away", 12),
            LogRecord(at(4), Stream.STDOUT, b"bytes \xff\x00\x1b]0;t\x07\n"),
            LogRecord(at(6), Stream.STDOUT, b"half a line"),
        ],
        "bbbbbbbbbbb2": [
            LogRecord(at(1), Stream.STDOUT, b"job 1\n"),
            LogRecord(at(5), Stream.STDERR, b"killed\n"),
        ],
    }


def fleet(*, dead: bool = False) -> list[Backend]:
    """The sandboxes above, and where asked a second backend that does not answer."""
    stats = {"aaaaaaaaaaa1": [Stats(NOW, 12.5, 150 << 20, 512 << 20, 7, 1024.0, 2048.0, 0.0, None)]}
    fake = FakeBackend(sandboxes(), logs=_logs(), stats=stats, clock=lambda: NOW, images=("host", "python:3.12"))
    gone = FakeBackend(name="gone", dead=True, reason="connection refused")
    return [fake, gone] if dead else [fake]


class Golden:
    """Runs command lines one after another on one fleet and one audit log."""

    def __init__(self, backends: Sequence[Backend], config: Config | None = None, *, tty: bool = False,
                 err_tty: bool = False) -> None:  # fmt: skip
        self._backends = list(backends)
        self._config = config or Config(backend="fake")
        self._tty, self._err_tty = tty, err_tty
        self.transcript = ""

    def __call__(self, line: str, *, stdin: int | None = None) -> int:
        """Run one; what it printed is added to the transcript."""
        out, err = io.BytesIO(), io.BytesIO()
        streams = Streams(Sink(out, tty=self._tty), Sink(err, tty=self._err_tty), stdin)
        code = run(parser.parse(shlex.split(line)), opener=self._open, streams=streams, now=lambda: NOW)
        self.transcript += f"$ {line}\n{_shown(out)}"
        self.transcript += "".join(f"! {text}\n" for text in _shown(err).splitlines())
        self.transcript += f"[{code}]\n"
        return code

    @asynccontextmanager
    async def _open(self, *, only_backend: str = "", **how: Any) -> AsyncIterator[Console]:
        name = only_backend.partition("/")[0]
        asked = [one for one in self._backends if name in ("", one.name)]
        async with open_console(self._config, backends=asked, **how) as console:
            yield console

    def check(self, name: str) -> None:
        """Compare with the file of this name; UPDATE_GOLDEN=1 writes it."""
        found = self.transcript
        for pattern, put in _CHANGING:
            found = pattern.sub(put, found)
        path = FOLDER / f"{name}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            FOLDER.mkdir(exist_ok=True)
            path.write_text(found, newline="")
        assert found == path.read_bytes().decode()


def _shown(data: io.BytesIO) -> str:
    """Every byte as text that a file can keep: what is not UTF-8 or acts is escaped."""
    text = data.getvalue().decode("utf-8", "backslashreplace")
    text = "".join(char if char in "\n\t" or char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)
    return text if not text or text.endswith("\n") else f"{text}\\c\n"
