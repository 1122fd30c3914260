"""``stats``: shows the usage of running sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import Columns, size
from sandbox_console.cli.lookup import PATIENCE_S, find_named, say_waiting, warn_of_the_silent
from sandbox_console.errors import BackendUnreachable, ConsoleError, NotFound
from sandbox_console.model.sandbox import BackendHealth, Sandbox, Stats
from sandbox_console.service import Console

_HEAD = ("NAME", "CPU", "MEMORY", "LIMIT", "PIDS", "NET IN/S", "NET OUT/S", "READ/S", "WRITE/S", "LOG/S")
_INTERVAL_S = 1.0

RETRY_S = 1.0
"""How often a backend that went away is tried again."""


async def stats(context: Context) -> int:
    """Print one sample of each, or with ``--watch`` one a second until Ctrl+C. 100 % CPU is one vCPU."""
    columns = Columns(_HEAD)
    async with context.open() as console, asyncio.TaskGroup() as watches:
        async with aclosing(_chosen(context, console)) as parts:
            async for sandboxes in parts:
                if context.args.watch:
                    for sandbox in sandboxes:
                        watches.create_task(_watch(context, console, sandbox))
                elif sandboxes:
                    await _print_once(context, console, columns, sandboxes)
        if not (context.json or context.args.watch or context.failures):
            _lines(context, columns.lines(()))
    return context.code


async def _chosen(context: Context, console: Console) -> AsyncGenerator[Sequence[Sandbox], None]:
    """The sandboxes of the names given, or all that run, in parts as their hosts answer."""
    if context.args.names:
        yield await find_named(context, console, context.args.names, changing=False)
        return
    healths: list[BackendHealth] = []
    async with aclosing(console.list_as_answered(context.backend[0], PATIENCE_S)) as answers:
        async for (sandboxes, some), waiting in answers:
            healths += some
            say_waiting(context, waiting)
            live = (sandbox for sandbox in sandboxes if sandbox.status.live)
            yield sorted(live, key=lambda sandbox: (sandbox.name, sandbox.ref))
    warn_of_the_silent(context, console, healths)


async def _print_once(context: Context, console: Console, columns: Columns, sandboxes: Sequence[Sandbox]) -> None:
    samples = await asyncio.gather(*(_sample(context, console, sandbox) for sandbox in sandboxes))
    found = [(sandbox, sample) for sandbox, sample in zip(sandboxes, samples, strict=True) if sample is not None]
    if context.json:
        for sandbox, sample in found:
            context.record(json_output.stats(sandbox, sample))
    elif found:
        _lines(context, columns.lines(_row(sandbox, sample) for sandbox, sample in found))


def _lines(context: Context, lines: Iterable[str]) -> None:
    for line in lines:
        context.streams.out.line(line)


async def _sample(context: Context, console: Console, sandbox: Sandbox) -> Stats | None:
    """The first sample with a CPU rate, which takes two readings, else the second; None if it does not run."""
    last: Stats | None = None
    try:
        async for sample in console.stats(sandbox.ref, _INTERVAL_S):
            if sample.cpu_percent is not None or last is not None:
                return sample
            last = sample
    except ConsoleError as error:
        context.fail(error, sandbox.name)
    return last


async def _watch(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Print samples until it no longer runs. If the backend goes away meanwhile, wait for it."""
    sampled = away = False
    while True:
        try:
            async for sample in console.stats(sandbox.ref, _INTERVAL_S):
                sampled, away = True, False
                if context.json:
                    context.record(json_output.stats(sandbox, sample))
                else:
                    context.text("  ".join(_row(sandbox, sample)))
            break
        except BackendUnreachable as error:
            if not sampled:
                context.fail(error, sandbox.name)
                return
            if not away:
                context.say(f"{sandbox.name}: {error.message}; waiting for it")
            away = True
            await asyncio.sleep(RETRY_S)
        except ConsoleError as error:
            if not (
                sampled and isinstance(error, NotFound)
            ):  # some backends only end the stream when a sandbox is removed
                context.fail(error, sandbox.name)
                return
            break
    context.say(f"{sandbox.name} is no longer running")


def _row(sandbox: Sandbox, sample: Stats) -> tuple[str, ...]:
    return (
        sandbox.name,
        "-" if sample.cpu_percent is None else f"{sample.cpu_percent:.1f}%",
        size(sample.memory_bytes),
        size(sample.memory_limit),
        "-" if sample.pids is None else str(sample.pids),
        *map(size, (sample.net_rx, sample.net_tx, sample.block_read, sample.block_write, sample.log_rate)),
    )
