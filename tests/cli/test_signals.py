"""What a signal does to a verb."""

from __future__ import annotations

import asyncio
import io
import os
import signal

import pytest

from sandbox_console.cli import parser
from sandbox_console.cli import run as running
from sandbox_console.cli.context import Context, Sink, Streams


def test_the_same_signal_twice_leaves_it_the_time_to_end_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def verb(_: Context) -> int:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.5)
            ended.append("all of it")
        return 0

    monkeypatch.setattr(running, "find", lambda _: verb)
    monkeypatch.setattr(running, "PATIENCE_S", 60.0)
    sink = Sink(io.BytesIO(), tty=False)
    assert running.run(parser.parse(["ls"]), streams=Streams(sink, sink)) == 128 + signal.SIGINT
    assert ended == ["all of it"]
