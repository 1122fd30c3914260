"""``doctor``: reports what works here, what does not, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.cli.context import Context, colours
from sandbox_console.cli.formatting import size
from sandbox_console.cli.lookup import host_label
from sandbox_console.command_server import client, served_calls
from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capability
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import BackendHealth, HealthState
from sandbox_console.service import Console, find_paths, load
from sandbox_console.version import __version__

_LEAST = (80, 24)
_LEAST_ROOM = 1 << 20
"""Bytes. With less space, the next actions may be the last, as the database and its log grow."""

_NO_ROOM = 1 << 16
"""Bytes. With less space, no action can be recorded. With 508 KiB, a few hundred can."""


class Finding(Struct, frozen=True):
    """The result of one check. ``state`` is ok, warning or problem."""

    what: str
    state: str
    text: str
    hint: str = ""


async def doctor(context: Context) -> int:
    """Check everything. Exits 1 only if nothing works: no backend answers, or no action could be recorded."""
    findings = [_python(), *_config(context), _state_dir(context), _terminal(context), _server()]
    works = False
    try:
        async with context.open() as console:
            recording = await _audit(console)
            findings += recording
            health = list(await console.health())
            findings += _hosts(context, console, health)
            for one in health:
                findings += await _backend(console, one)
            findings += await _kept_shells(console)
            works = any(one.ok for one in health) and all(one.state != "problem" for one in recording)
    except ConsoleError as error:
        findings.append(Finding("console", "problem", error.message, error.hint))
    for finding in findings:
        _print(context, finding)
    return 0 if works else 1


def _print(context: Context, finding: Finding) -> None:
    if context.json:
        context.record(msgspec.to_builtins(finding))
        return
    context.text(f"{finding.state:<8} {finding.what:<22} {finding.text}".rstrip())
    if finding.hint:
        context.text(f"{'':<8} {'':<22} -> {finding.hint}")


def _python() -> Finding:
    kernel = os.uname()  # platform.platform() runs uname from PATH, which may be a guest's
    system = f"{kernel.sysname}-{kernel.release}-{kernel.machine}-with-{''.join(platform.libc_ver()) or 'unknown libc'}"
    return Finding("versions", "ok", f"sandbox-console {__version__}, Python {platform.python_version()}, {system}")


def _config(context: Context) -> Iterable[Finding]:
    paths = find_paths(Path(context.args.config) if context.args.config else None)
    try:
        load(paths, required=bool(context.args.config))
    except ConsoleError as error:
        return [Finding("config", "problem", error.message, error.hint)]
    there = "is valid" if paths.config_file.exists() else "does not exist: the defaults apply"
    return [Finding("config", "ok", f"{paths.config_file} {there}")]


def _state_dir(context: Context) -> Finding:
    path = find_paths(Path(context.args.config) if context.args.config else None).state
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Finding("state", "ok", f"{path} does not exist yet: it is created when first needed")
    except OSError as error:
        return Finding("state", "problem", f"{path}: {error.strerror}")
    if mode & 0o077:
        return Finding("state", "warning", f"{path} has mode {mode:04o}: other users can read it", f"chmod 700 {path}")
    if not os.access(path, os.W_OK):
        return Finding("state", "problem", f"{path} cannot be written", "see its owner: ls -ld")
    return Finding("state", "ok", f"{path}, mode {mode:04o}")


def _terminal(context: Context) -> Finding:
    if not context.streams.out.tty:
        return Finding("terminal", "ok", "stdout is not a terminal: data is written unchanged")
    size = shutil.get_terminal_size()
    kind = os.environ.get("COLORTERM") or os.environ.get("TERM") or "unknown"
    text = f"{size.columns}x{size.lines}, {kind}, colours {'on' if colours(context.streams.out) else 'off'}"
    small = size.columns < _LEAST[0] or size.lines < _LEAST[1]
    return Finding("terminal", "warning" if small else "ok", text, "the TUI needs 80x24" if small else "")


def _server() -> Finding:
    if not served_calls.may_serve(["ls"]):
        return Finding("command server", "ok", "is not used: each command imports what it needs")
    process, answers = client.look()
    if answers or not process:
        return Finding(
            "command server", "ok", f"process {process}" if process else "not running: the next command starts it"
        )
    text = f"process {process} does not answer: each command waits half a second for it, then runs without it"
    return Finding("command server", "warning", text, f"kill -KILL {process}, or SANDBOX_CONSOLE_SERVER=off")


async def _audit(console: Console) -> list[Finding]:
    findings: list[Finding] = []
    try:
        await console.audit_log.journal()
        findings.append(_room(console.audit_log.path))
    except ConsoleError as error:
        findings.append(Finding("audit log", "problem", error.message, error.hint or "no action runs until it can"))
    try:
        verdict = await console.verify()
    except ConsoleError as error:
        return [*findings, Finding("audit chain", "problem", error.message, error.hint)]
    if verdict.ok:
        return [*findings, Finding("audit chain", "ok", f"{verdict.rows} rows are intact")]
    where = "" if verdict.first_bad is None else f"row {verdict.first_bad}: "
    hint = "keep the file as evidence: sandbox-console audit verify"
    return [*findings, Finding("audit chain", "warning", f"{where}{verdict.problem}", hint)]


def _room(path: Path) -> Finding:
    """Check the free space: an open log on a full disk accepts only emergencies."""
    disk = os.statvfs(path.parent)
    free = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize
    if free >= _LEAST_ROOM:
        return Finding("audit log", "ok", f"{path} can be written")
    if free >= _NO_ROOM:
        return Finding("audit log", "warning", f"the disk of {path} has {size(free)} left", "free some space")
    hint = "free some space; until then stop, kill, pause, resume and egress deny work, and nothing else is changed"
    return Finding("audit log", "problem", f"the disk of {path} is full", hint)


def _hosts(context: Context, console: Console, healths: Sequence[BackendHealth]) -> Iterable[Finding]:
    """Count the hosts of a fleet, and check the tables about them."""
    some = [one for one in healths if one.state is not HealthState.UNAVAILABLE]
    silent = [host_label(one) for one in some if not one.ok]
    if len(some) > 1 and silent:
        text = f"{len(some) - len(silent)} of {len(some)} answer; not: {', '.join(silent)}"
        yield Finding("hosts", "warning", text, "below is why")
    elif len(some) > 1:
        yield Finding("hosts", "ok", f"{len(some)} of {len(some)} answer")
    if context.args.on_hosts or context.args.backend:
        return  # the others' tables match none of these
    for pattern in console.unused_host_tables():
        near = nearest(pattern, ["/".join(key) for key in console.places] + [host for _, host in console.places])
        hint = f"did you mean {near!r}?" if near else "sandbox-console backends lists them"
        yield Finding("hosts", "warning", f'[hosts."{pattern}"] in the configuration matches no host', hint)


async def _kept_shells(console: Console) -> list[Finding]:
    shells = await console.kept_shells.list()
    silent = [shell for shell in shells if not shell.answers]
    hint = "its end is recorded by the next command that changes something"
    dead = [Finding("kept shell", "warning", f"{shell.name}: its process does not answer", hint) for shell in silent]
    kept_shells = [shell for shell in shells if shell.answers]
    if not kept_shells:
        return dead
    names = ", ".join(f"{shell.name} (process {shell.pid})" for shell in kept_shells)
    return [Finding("kept shells", "ok", names, "sandbox-console shells ls"), *dead]


async def _backend(console: Console, health: BackendHealth) -> list[Finding]:
    name = host_label(health)
    looked = await console.diagnose(health.backend, health.host)
    findings = [Finding(f"{name} {one.what}", one.state, one.text, one.hint) for one in looked]
    if not health.ok:
        return [Finding(name, "warning", f"{health.state}: {health.reason}", health.hint), *findings]
    options = console.host_options(health.backend, health.host)
    words = f" ({', '.join(options.words)})" if options.words else ""
    found: list[Any] = [Finding(name, "ok", f"answers {health.version}".rstrip() + words), *findings]
    capabilities = await console.capabilities(health.backend, health.host)
    lacking = [one for one in Capability if not capabilities.has(one)]
    return [*found, *(Finding(f"{name} lacks", "ok", f"{one}: {capabilities.reason(one)}") for one in lacking)]
